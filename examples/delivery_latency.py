"""How long is it from a send to the second tick? A notebook-style script: run it cell by cell.

    python examples/delivery_latency.py http://127.0.0.1:8080 --count 200

It makes two throwaway accounts, sends from one to the other, and shows how long "stored" and
"delivered" took; with matplotlib installed also as delivery_latency.png.
"""

# %% What we need

import argparse
import asyncio
import secrets
import statistics
import time

from tidewire.client import Client, ClientOptions

parser = argparse.ArgumentParser(description="Measure the way to the second tick.")
parser.add_argument("url")
parser.add_argument("--count", type=int, default=200)
parser.add_argument("--plot", default="delivery_latency.png")
arguments = parser.parse_args()

# A phone saves frames and acknowledges after ten messages or five seconds. To see the way itself,
# our receiver acknowledges each message at once.
EAGER = ClientOptions(ack_messages=1, ack_ms=1, ack_interval_ms=1)


# %% Measure


async def person(name: str) -> tuple[str, Client]:
    username = f"{name}-{secrets.token_hex(4)}"
    client = await Client.register(
        arguments.url, username, secrets.token_urlsafe(16), options=EAGER
    )
    return username, client


async def measure(count: int) -> tuple[list[float], list[float]]:
    """Milliseconds until stored and until delivered, one message after the other."""
    _, sender = await person("sender")
    username, receiver = await person("receiver")
    stored_ms, delivered_ms = [], []
    async with sender, receiver:
        await receiver.ready()
        chat = await sender.direct(username)
        for number in range(count):
            begin = time.perf_counter()
            sent = await chat.send(f"message {number}")
            await sent.stored()
            stored_ms.append((time.perf_counter() - begin) * 1000)
            await sent.delivered()
            delivered_ms.append((time.perf_counter() - begin) * 1000)
    return stored_ms, delivered_ms


stored, delivered = asyncio.run(measure(arguments.count))


# %% Show


def histogram(title: str, values: list[float], bins: int = 10, width: int = 50) -> None:
    low, high = min(values), max(values)
    step = (high - low) / bins or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / step))] += 1
    print(f"\n{title}: median {statistics.median(values):.1f} ms, worst {high:.1f} ms")
    for number, count in enumerate(counts):
        bar = "█" * round(width * count / max(counts))
        print(f"{low + number * step:8.1f} ms │{bar} {count}")


print(f"{len(delivered)} messages")
histogram("stored (✓)", stored)
histogram("delivered (✓✓)", delivered)


# %% Plot

try:
    import matplotlib.pyplot as plt  # type: ignore[import-not-found, unused-ignore]
except ModuleNotFoundError:
    print("\n(no plot: matplotlib is not installed)")
else:
    figure, axes = plt.subplots()
    axes.hist([stored, delivered], bins=30, label=["stored ✓", "delivered ✓✓"])
    axes.set_xlabel("ms")
    axes.set_ylabel("messages")
    axes.legend()
    figure.savefig(arguments.plot)
    print(f"\nplotted in {arguments.plot}")
