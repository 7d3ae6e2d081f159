"""A store of schema 1 goes on under the schema that has accounts: people, chats, messages."""

from pathlib import Path

import apsw

from tests.support.accounts import a_login
from tests.support.engines import SqliteHarness
from tests.support.world import World
from tidewire.domain.errors import Forbidden
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import DATABASE_NAME
from tidewire.engines.sqlite.migrate import migrate, migrations

ANNA = UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHE")
BEN = UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHF")
CHAT = ChatId("chat_01J9ZK4T7Q2M8V5RXB3N6C0DHG")

OLD_ROWS = f"""
INSERT INTO users VALUES ('{ANNA}', 'anna', 'Anna', 1, 1), ('{BEN}', 'ben', 'Ben', 2, 2);
INSERT INTO chats VALUES ('{CHAT}', 'direct', NULL, '{ANNA}', 3, 3, 1, 2);
INSERT INTO chat_counters (chat_id, sequence_counter, created_at, updated_at)
    VALUES ('{CHAT}', 1, 3, 4);
INSERT INTO chat_memberships VALUES ('{CHAT}', '{ANNA}', 'member', 3, 0, '{ANNA}', NULL);
INSERT INTO chat_memberships VALUES ('{CHAT}', '{BEN}', 'member', 3, 0, '{ANNA}', 99);
INSERT INTO delivery_state (user_id, chat_id, updated_at, joined_sequence)
    VALUES ('{ANNA}', '{CHAT}', 3, 0), ('{BEN}', '{CHAT}', 3, 0);
INSERT INTO direct_chat_index VALUES ('{ANNA}#{BEN}', '{CHAT}', 3);
INSERT INTO messages VALUES (1, '{CHAT}', 1, 0, 'msg_1', '{ANNA}',
    '00000000-0000-4000-8000-000000000000', 'from before', 'text/plain', 4);
"""

OLD_ROWS_2 = (
    OLD_ROWS.replace("'anna', 'Anna', 1, 1)", "'anna', 'Anna', 1, 1, NULL, NULL)")
    .replace("'ben', 'Ben', 2, 2)", "'ben', 'Ben', 2, 2, NULL, NULL)")
    .replace("3, 3, 1, 2)", "3, 3, 5, 2)")
    .replace("NULL);\nINSERT INTO chat_m", "NULL, NULL);\nINSERT INTO chat_m")
    .replace("99);", "99, NULL);")
)
"""The same in schema 2, where the chat's version is 5."""


async def test_shown_version_goes_on_from_the_version_that_was_shown(tmp_path: Path) -> None:
    """Schema 2 showed members the version that blocks raise: the shown one must not fall (A16)."""
    database = apsw.Connection(str(tmp_path / DATABASE_NAME))
    migrate(database, tmp_path, migrations()[:2])
    database.execute(OLD_ROWS_2).fetchall()
    database.close()
    engine = SqliteHarness(tmp_path)
    await engine.open()
    try:
        world = World(engine)
        assert (await world.chat(BEN, CHAT)).shown_version == 5
        await world.storage.block(ANNA, BEN, now_ms=world.now())
        assert (await world.entry(BEN, CHAT)).membership_version == 5
        assert (await world.chat(BEN, CHAT)).membership_version == 6
    finally:
        await engine.close()


async def test_store_of_the_first_schema_goes_on(tmp_path: Path) -> None:
    database = apsw.Connection(str(tmp_path / DATABASE_NAME))
    migrate(database, tmp_path, migrations()[:1])
    database.execute(OLD_ROWS).fetchall()
    database.close()
    engine = SqliteHarness(tmp_path)
    await engine.open()
    try:
        world = World(engine)
        [user] = await world.storage.users([ANNA])
        assert (user.username, user.disabled_at_ms) == ("anna", None)
        assert [message.content for message in await world.messages(BEN, CHAT)] == ["from before"]
        assert (await world.members(ANNA, CHAT))[BEN].muted_until_ms == 99
        await world.send(CHAT, BEN)
        await world.storage.block(ANNA, BEN, now_ms=world.now())
        assert isinstance(await world.try_send(CHAT, BEN), Forbidden)
        await world.storage.set_password(
            ANNA, "hash", expected_hash=None, keep=None, now_ms=world.now()
        )
        login = a_login(world, ANNA, password_hash="hash")
        await world.storage.open_session(login, sessions_max=5, now_ms=world.now())
        assert len(list((tmp_path / "backups").iterdir())) == 1
    finally:
        await engine.close()
