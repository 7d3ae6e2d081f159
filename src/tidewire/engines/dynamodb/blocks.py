"""Blocks. One acts on the pair's direct chat in the same transaction, or needs that there is none
(DESIGN 8): so no message can pass between a block and its mark."""

from tidewire.domain.accounts import BlockChange
from tidewire.domain.chats import pair_key
from tidewire.domain.errors import InvalidOperation, NotAMember
from tidewire.domain.ids import USER_PREFIX, ChatId, UserId
from tidewire.domain.limits import BLOCKS_MAX
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.backoff import Hindrance
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.errors import Cancelled
from tidewire.engines.dynamodb.reading import read_chat
from tidewire.engines.dynamodb.rows import Value, Write
from tidewire.engines.dynamodb.users import the_user_row


async def set_block(
    database: Database,
    user_id: UserId,
    blocked_id: UserId,
    *,
    wanted: bool,
    now_ms: int = 0,
) -> BlockChange:
    key: dict[str, Value] = {"user_id": user_id, "blocked_id": blocked_id}
    tried = 0
    while True:
        is_there = await database.get(schema.BLOCKS, key) is not None
        if is_there == wanted:
            return BlockChange(changed=False)
        if wanted:
            user = await the_user_row(database, user_id)
            if user["blocks_count"] >= BLOCKS_MAX:
                raise InvalidOperation(f"at most {BLOCKS_MAX} people can be blocked")
            block = rows.put_new(schema.BLOCKS, key | {"created_at": now_ms})
        else:
            block = rows.delete(schema.BLOCKS, key, condition="attribute_exists(#user_id)")
        count = rows.update(
            schema.USERS,
            {"user_id": user_id},
            "ADD #blocks_count :one",
            condition="#blocks_count <= :most",
            one=1 if wanted else -1,
            most=BLOCKS_MAX - 1 if wanted else BLOCKS_MAX,
        )
        chat_id, marks = await _marks(database, user_id, blocked_id, wanted=wanted)
        try:
            await database.transact([block, count, *marks])
        except Cancelled:
            await database.pause(Hindrance.CONFLICT, min(tried, 2))
            tried += 1
        else:
            return BlockChange(changed=True, chat_id=chat_id)


async def _marks(
    database: Database, user_id: UserId, blocked_id: UserId, *, wanted: bool
) -> tuple[ChatId | None, list[Write]]:
    """What a block does to the pair's direct chat, or the condition that there is none."""
    pair = {"pair_key": pair_key(user_id, blocked_id)}
    row = await database.get(schema.DIRECT_CHATS, pair)
    if row is None:
        return None, [rows.check(schema.DIRECT_CHATS, pair, "attribute_not_exists(#pair_key)")]
    chat = await read_chat(database, ChatId(row["chat_id"]))
    if chat is None:
        raise NotAMember
    version = chat.membership_version
    fields: dict[str, Value] = {"mark": True} if wanted else {}
    return chat.chat_id, [
        rows.update(
            schema.CHATS,
            {"chat_id": chat.chat_id},
            "SET #membership_version = :next, #block_changes = :blocks",
            condition="#membership_version = :version",
            version=version,
            next=version + 1,
            blocks=chat.block_changes + 1,
        ),
        rows.update(
            schema.MEMBERSHIPS,
            {"chat_id": chat.chat_id, "user_id": blocked_id},
            "SET #blocked = :mark" if wanted else "REMOVE #blocked",
            condition="attribute_exists(#user_id)",
            **fields,
        ),
    ]


async def blocked_users(
    database: Database, user_id: UserId, *, after: UserId | None, count_max: int
) -> list[UserId]:
    # Groups that were refused lie below all people.
    start = after or USER_PREFIX
    found = await database.query(schema.BLOCKS, user_id, above=start, limit=count_max)
    return [UserId(row["blocked_id"]) for row in found]
