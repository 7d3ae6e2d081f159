"""The DynamoDB engine as a whole: its parts together.

Commits of one chat happen one at a time within this process. The listener gets their events in
that order, before the caller gets its answer.
"""

from contextlib import AsyncExitStack
from typing import Any

from tidewire.domain.ids import ChatId
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.accounts import Accounts
from tidewire.engines.dynamodb.acts import act
from tidewire.engines.dynamodb.append import Appending, Senders
from tidewire.engines.dynamodb.chat_list import ChatList
from tidewire.engines.dynamodb.creation import Creation
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.known import Known
from tidewire.engines.dynamodb.member_cache import MemberCache
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.outbox import OutboxPart
from tidewire.engines.dynamodb.own_moves import OwnMoves
from tidewire.engines.dynamodb.schema_version import NEWEST, SeenVersion, check_known, read_version
from tidewire.engines.dynamodb.tables import read_epoch
from tidewire.engines.dynamodb.tails import Tails
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.storage import ChatStore, Storage


class DynamoStorage(Appending, Creation, ChatList, OutboxPart, Accounts, ChatStore):
    """A whole store in DynamoDB."""

    def __init__(
        self,
        database: Database,
        exit_stack: AsyncExitStack,
        *,
        epoch: str,
        version: int = NEWEST,
        listener: CommitListener = ignore_commits,
    ) -> None:
        super().__init__(database, exit_stack, listener=listener)
        self._epoch = epoch
        self._version = SeenVersion(version)
        self._known = Known()
        self._tails = Tails()
        self.on_overtaken = _tell_nobody
        self._own_moves = OwnMoves()
        self._own_moves_timer = None
        self._senders = Senders()
        self._rosters = MemberCache()
        self._sweeping = set()
        self._sweep_from: dict[str, Any] = {}

    @classmethod
    async def open(
        cls, options: DynamoOptions, *, listener: CommitListener = ignore_commits
    ) -> "DynamoStorage":
        """Connect to tables that exist. Raises StoreUnusable if they do not, or if a later release
        has upgraded them."""
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database.connect(options))
            epoch = await read_epoch(database)
            version = await read_version(database)
            check_known(version)
            return cls(database, stack.pop_all(), epoch=epoch, version=version, listener=listener)
        raise AssertionError("unreachable")

    @property
    def epoch(self) -> str:
        return self._epoch

    async def check_room(self) -> None:
        """There is always room."""

    @act
    async def agree(self, name: str, value: str) -> str:
        """Store a value that all processes must share; return the one that was stored first."""
        note: rows.Row = {"name": name, "value": value}
        found = await self._database.get(schema.STORE, {"name": name})
        if found is None and not await self._database.commit([rows.put_new(schema.STORE, note)]):
            found = await self._database.get(schema.STORE, {"name": name})
            assert found is not None
        agreed: str = (found or note)["value"]
        return agreed

    @act
    async def agree_anew(self, name: str, expected: str, value: str) -> None:
        """Replace such a value, if it is still the expected one: of two calls at the same time, one
        succeeds."""
        where = {"value": expected}
        # If the write fails, another was quicker, or it is done already: the next read tells.
        await self._database.try_write(
            rows.change(schema.STORE, {"name": name}, {"value": value}, where=where)
        )


def _tell_nobody(chat_id: ChatId) -> None:
    """Does nothing: used where the processes of a cluster do not give way to each other."""


_CONFORMS: type[Storage] = DynamoStorage
