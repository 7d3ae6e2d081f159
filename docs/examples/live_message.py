"""Send one message over WebSocket and show every frame until its tick.

Run it:  .venv/bin/python docs/examples/live_message.py ws://127.0.0.1:8080/v1/ws TOKEN DEVICE CHAT
The README shows where the token, the device and the chat come from.
"""
# ruff: noqa: T201, TID251 - an example prints, and makes a client's ids itself

import asyncio
import json
import sys
import uuid

from websockets import connect


async def main(url: str, token: str, device_id: str, chat_id: str) -> None:
    message = {
        "client_message_id": str(uuid.uuid4()),
        "chat_id": chat_id,
        "content": "Live!",
        "seen_sequence": 0,  # nothing was read here yet
    }
    headers = {"Authorization": f"Bearer {token}", "X-Device-ID": device_id}
    async with connect(url, additional_headers=headers) as socket:
        async for text in socket:
            frame = json.loads(text)
            print(frame["type"], frame["payload"].get("sequence", ""))
            if frame["type"] == "connection_established":
                send = {"type": "send_message", "request_id": "1", "payload": message}
                await socket.send(json.dumps(send))
            elif frame["type"] == "send_message_ack":
                return


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
