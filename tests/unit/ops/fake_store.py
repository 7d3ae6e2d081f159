"""A store that is nothing but rows, so that a test can break one of them and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.ports.inspection import (
    ChangeRow,
    ChatRow,
    Damaged,
    EntryRow,
    Inspector,
    KeptRow,
    MessageRow,
    PairRow,
    PositionRow,
    TargetRow,
)

GROUP = ChatId("chat_a_group")
DIRECT = ChatId("chat_b_direct")

Row = TypeVar("Row")


def message(sequence: int, prev: int, position: int, name: str) -> MessageRow:
    return (sequence, prev, position, f"msg_{name}", f"key_{name}", position, False)


class FakeStore:
    """Sound as it is made: a group with a gap in its sequences, and a direct chat."""

    def __init__(self, *, chunk_rows: int = 2) -> None:
        self.chunk_rows = chunk_rows
        self.damaged: str | None = None
        self.is_closed = False
        self.has_message_ids = True
        self.rows: dict[ChatId, ChatRow] = {
            GROUP: ChatRow(
                chat_id=GROUP,
                chat_type="group",
                member_count=3,
                members=[
                    ("user_1", "owner", 0, 9, 7),
                    ("user_2", "admin", 0, 4, 4),
                    ("user_3", "member", 7, 0, 0),
                ],
                counter=12,
                head=9,
                pair_key=None,
                floor_delivered=4,
                floor_read=4,
            ),
            DIRECT: ChatRow(
                chat_id=DIRECT,
                chat_type="direct",
                member_count=2,
                members=[("user_1", "member", 0, 1, 1), ("user_2", "member", 0, 0, 0)],
                counter=1,
                head=1,
                pair_key="user_1#user_2",
                floor_delivered=0,
                floor_read=0,
            ),
        }
        self.message_rows: dict[ChatId, list[MessageRow]] = {
            GROUP: [
                message(1, 0, 10, "e"),
                message(2, 1, 12, "d"),
                message(4, 2, 13, "c"),
                message(7, 4, 20, "b"),
                message(9, 7, 21, "a"),
            ],
            DIRECT: [message(1, 0, 11, "z")],
        }
        self.key_rows: dict[ChatId, list[EntryRow]] = {
            chat_id: sorted(((row[4], row[5]) for row in rows), key=str)
            for chat_id, rows in self.message_rows.items()
        }
        self.id_rows: list[EntryRow] = sorted(
            ((row[3], row[5]) for rows in self.message_rows.values() for row in rows), key=str
        )
        self.position_rows: list[PositionRow] = [
            PositionRow("user_1", GROUP, 9, 7, 0, 0, 9, 12, True),
            PositionRow("user_2", GROUP, 4, 4, 0, 0, 9, 12, True),
            PositionRow("user_3", GROUP, 0, 0, 7, 7, 9, 12, True),
            PositionRow("user_4", GROUP, 2, 1, None, None, 9, 12, True),
            PositionRow("user_1", DIRECT, 1, 1, 0, 0, 1, 1, True),
            PositionRow("user_2", DIRECT, 0, 0, 0, 0, 1, 1, True),
        ]
        self._keep_changes()
        self.knows_changes = True
        self.pair_rows: list[PairRow] = [("user_1#user_2", DIRECT, "direct")]

    def _keep_changes(self) -> None:
        # Two messages (1, 2), an edit of the first (4), a reaction to the second (7), and a message
        # with a mention (9).
        target = TargetRow(True, True, None)
        edit = Amendment(kind=EntryKind.EDIT, target=1)
        react = Amendment(kind=EntryKind.REACT, target=2, emoji="👍")
        said = {
            4: ChangeRow(4, "user_1", edit, None, (), 0, True, None),
            7: ChangeRow(7, "user_2", react, None, (), 1, False, None),
            9: ChangeRow(9, "user_1", None, 2, ("user_3",), 0, True, None),
        }
        self.change_rows: dict[ChatId, list[ChangeRow]] = {
            GROUP: [
                said[4]._replace(target=target, kept=4, message_before=2, chained_before=2),
                said[7]._replace(
                    target=target, kept=7, on_count=1, message_before=2, chained_before=2
                ),
                said[9]._replace(target=target, found_mentions=["user_3"]),
            ],
            DIRECT: [],
        }
        self.kept_rows: list[KeptRow] = [
            KeptRow(GROUP, EntryKind.EDIT, 4, "", edit, said[4], False),
            KeptRow(GROUP, EntryKind.REACT, 7, "user_2", react, said[7], False),
            KeptRow(GROUP, EntryKind.MESSAGE, 9, "user_3", None, said[9], False),
        ]

    def change(self, chat_id: ChatId, **fields: object) -> None:
        """Replace fields of one chat's row."""
        self.rows[chat_id] = self.rows[chat_id]._replace(**fields)  # type: ignore[arg-type]

    def change_position(self, index: int, **fields: object) -> None:
        row = self.position_rows[index]
        self.position_rows[index] = row._replace(**fields)  # type: ignore[arg-type]

    def change_entry(self, index: int, **fields: object) -> None:
        row = self.change_rows[GROUP][index]
        self.change_rows[GROUP][index] = row._replace(**fields)  # type: ignore[arg-type]

    def change_kept(self, index: int, **fields: object) -> None:
        row = self.kept_rows[index]
        self.kept_rows[index] = row._replace(**fields)  # type: ignore[arg-type]

    # The port.

    @property
    def epoch(self) -> str:
        return "epoch-1"

    def messages_estimate(self) -> int:
        return sum(map(len, self.message_rows.values()))

    def chats(self) -> Iterator[ChatRow]:
        self._check("chats")
        for chat_id in sorted(self.rows):
            yield self.rows[chat_id]
            self._check(f"chats after {chat_id}")

    def messages(self, chat: ChatRow) -> Iterator[Sequence[MessageRow]]:
        return self._chunks(f"messages of {chat.chat_id}", self.message_rows[chat.chat_id])

    def keys(self, chat: ChatRow) -> Iterator[Sequence[EntryRow]]:
        return self._chunks(f"keys of {chat.chat_id}", self.key_rows[chat.chat_id])

    def message_ids(self) -> Iterator[Sequence[EntryRow]] | None:
        return self._chunks("message ids", self.id_rows) if self.has_message_ids else None

    def changes(
        self, chat: ChatRow, is_sound: Callable[[ChangeRow], bool]
    ) -> Iterator[Sequence[ChangeRow]] | None:
        if not self.knows_changes:
            return None
        return self._chunks(f"changes of {chat.chat_id}", self.change_rows[chat.chat_id])

    def kept(self, is_sound: Callable[[KeptRow], bool]) -> Iterator[Sequence[KeptRow]] | None:
        return self._chunks("kept", self.kept_rows) if self.knows_changes else None

    def positions(self) -> Iterator[Sequence[PositionRow]]:
        return self._chunks("positions", self.position_rows)

    def direct_pairs(self) -> Iterator[Sequence[PairRow]]:
        return self._chunks("pairs", self.pair_rows)

    def close(self) -> None:
        self.is_closed = True

    def _chunks(self, place: str, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        for start in range(0, len(rows), self.chunk_rows):
            yield rows[start : start + self.chunk_rows]
            self._check(place)

    def _check(self, place: str) -> None:
        if place == self.damaged:
            raise Damaged(place, "malformed")


_CONFORMS: type[Inspector] = FakeStore
