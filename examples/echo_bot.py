"""A bot that answers every message with the same text: once, whatever happens to the bot.

    TIDEWIRE_TOKEN=$(tidewire tokens issue echo) python examples/echo_bot.py http://127.0.0.1:8080

Kill it at any instant and start it again: it goes on with the first message that it was not done
with. The id of an answer is derived from the message that it answers, so an answer that had left
already is not sent a second time.
"""

import argparse
import asyncio
import contextlib
import os

from tidewire.client import Client, MessageReceived


async def main(url: str, token: str, store: str) -> None:
    async with Client(url, token=token, store=store) as me:
        print("listening", flush=True)
        async for event in me.events():
            # Going on to the next event says that this one is done. Until then it comes again.
            if isinstance(event, MessageReceived):
                await me.chat(event.message.chat_id).reply(event.message, event.message.text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("--store", default="echo_bot.db", help="what must survive a crash")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(arguments.url, os.environ["TIDEWIRE_TOKEN"], arguments.store))
