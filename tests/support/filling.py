"""Puts many messages of a chat into the store of a stopped server. Holds no test."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tests.support.engines import SqliteHarness
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId, encode_ulid
from tidewire.domain.messages import Appended, SendMessage

DAYS: Final = 50
_BATCH_MAX: Final = 500


async def fill(data_dir: Path, chat_id: str, senders: Sequence[str], texts: Sequence[str]) -> None:
    """The senders take turns; the messages are spread evenly over days."""
    engine = SqliteHarness(data_dir)
    await engine.open()
    start = datetime.now(UTC) - timedelta(days=DAYS)
    batch = min(_BATCH_MAX, len(texts) // DAYS)
    for at in range(0, len(texts), batch):
        drafts = [
            SendMessage(
                chat_id=ChatId(chat_id),
                sender_id=UserId(senders[number % len(senders)]),
                client_message_id=ClientMessageId(str(uuid.uuid4())),
                message_id=MessageId(f"msg_{encode_ulid(uuid.uuid4().int)}"),
                content=texts[number],
            )
            for number in range(at, min(at + batch, len(texts)))
        ]
        moment = start + timedelta(days=DAYS) * (at / len(texts))
        outcomes = await engine.storage.append(drafts, now_ms=int(moment.timestamp() * 1000))
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
    await engine.close()
