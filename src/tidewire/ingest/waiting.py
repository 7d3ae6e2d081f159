"""Waiting for a while, on the loop's own clock, so that a simulation can turn it."""

import asyncio


async def pause(delay_ms: int) -> None:
    loop = asyncio.get_running_loop()
    paused = loop.create_future()
    handle = loop.call_later(delay_ms / 1000, paused.set_result, None)
    try:
        await paused
    finally:
        handle.cancel()
