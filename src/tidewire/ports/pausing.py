"""The pause between two tries of a plane."""

import asyncio


async def pause(delay_ms: int) -> None:
    """Wait so long, on the loop's clock.

    `asyncio.sleep` itself is banned in the planes (TID251), because there is nearly always a
    condition to wait for instead. What is left is somebody who does not answer and is asked again
    later: that goes through here, where it can be found and, in a simulation, replaced.
    """
    # Not a timer of our own: one that sets a future's result complains when the task is cancelled
    # in the very turn in which the time is over.
    await asyncio.sleep(delay_ms / 1000)  # noqa: TID251 - see above
