"""Changes the members and the name of a chat: decided and committed on the same version (M-05).

A group is closed by one transaction, whatever its size (M-03). From that commit on the chat's
status hides it from every reader and writer. The rows of its members mean nothing any more, and are
deleted afterwards, the owner's last: if the deletion stops early, the owner still has a row, and
the same request, sent again, continues it.
"""

from collections.abc import Sequence
from typing import Final

from tidewire.domain import access, chat_changes
from tidewire.domain.chat_changes import Changed, ChangeFacts, ChangeRequest, ChatChange, changed
from tidewire.domain.chats import Chat, Member, Role
from tidewire.domain.errors import NotAMember
from tidewire.domain.events import ChangeEvent
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import marks, rows, schema, values
from tidewire.engines.dynamodb.acts import act, until_committed
from tidewire.engines.dynamodb.blocks import refusal_checks, refusal_keys, refusal_write
from tidewire.engines.dynamodb.database import WRITES_MAX
from tidewire.engines.dynamodb.errors import Cancelled, ConditionFailed
from tidewire.engines.dynamodb.rosters import Rosters
from tidewire.engines.dynamodb.rows import Value, Write

MEMBERS_PER_SWEEP_MAX: Final = WRITES_MAX // 3
"""A member takes two rows and a mark."""


class Changes(Rosters):
    @act
    async def change_chat(self, request: ChangeRequest, *, now_ms: int) -> Changed:
        """Decide and commit, both on the same version."""
        async with self._locks.held(request.chat_id):
            with self._database.within_budget():
                facts, change = await self._commit(request, now_ms)
            for event in () if change is None else change.events:
                # Each by itself: each has an outbox row of its own.
                self._committed([event])
        return changed(facts, change)

    @until_committed
    async def _commit(
        self, request: ChangeRequest, now_ms: int
    ) -> tuple[ChangeFacts, ChatChange | None]:
        """The memberships are read after the head row: if one of them changes in between or later,
        the version has moved and the commit fails. That there are no refusals is a condition in the
        same transaction."""
        actor, chat_id, target = request.actor_id, request.chat_id, request.target_id
        concerned = [actor] if target is None else [actor, target]
        refusals = []
        if target is not None and request.joins:
            refusals = refusal_keys([target], actor=actor, chat_id=chat_id)
        chat = await self._chat(chat_id)
        user, *found = await self._database.get_many(
            [
                (schema.USERS, {"user_id": concerned[-1]}),
                *(
                    (schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id})
                    for user_id in concerned
                ),
                *((schema.BLOCKS, key) for key in refusals),
            ]
        )
        me, *others = [values.member_of(row) for row in found[: len(concerned)]]
        facts = ChangeFacts(
            chat,
            me,
            others[0] if others else None,
            target_exists=values.can_join(user),
            target_refuses=any(row is not None for row in found[len(concerned) :]),
        )
        change = request.decide(facts)
        if change is not None:
            assert chat is not None
            if change.left is not None:
                await self._leave_traces(chat_id, [change.left], now_ms)
            await self._fenced(
                [
                    _fence(chat, change),
                    *_member_changes(change, now_ms),
                    *([refusal_write(actor, chat_id, now_ms)] if request.refuses else []),
                    *refusal_checks(refusals),
                    *(event_write(event, now_ms) for event in change.events),
                ]
            )
        return facts, change

    async def _fenced(self, writes: Sequence[Write]) -> None:
        """A transaction that begins with the fence of its chat; it is counted if it is too late."""
        try:
            await self._database.transact(writes)
        except Cancelled:
            self._database.counts.fences_failed += 1
            raise

    async def _leave_traces(self, chat_id: ChatId, user_ids: Sequence[UserId], now_ms: int) -> None:
        """Positions stay when a member leaves, and show where a person has written. A position that
        has never moved gets its row now, not in the transaction: a member who floods a chat moves
        the position all the time, and would be in the way of the transaction."""
        found = await self._database.get_many(
            [(schema.POSITIONS, {"user_id": one, "chat_id": chat_id}) for one in user_ids]
        )
        for user_id, row in zip(user_ids, found, strict=True):
            if row is None:
                nowhere: dict[str, Value] = {
                    "user_id": user_id,
                    "chat_id": chat_id,
                    "last_acked_sequence": 0,
                    "last_read_sequence": 0,
                    "updated_at": now_ms,
                }
                # If the position has moved meanwhile, the row is there.
                await self._database.write_if(rows.put_new(schema.POSITIONS, nowhere))

    # Closing.

    @act
    async def close_group(self, actor: UserId, chat_id: ChatId, *, now_ms: int) -> None:
        async with self._locks.held(chat_id):
            with self._database.within_budget():
                event = await self._end(actor, chat_id, now_ms)
            if event is not None:
                self._committed([event])
            await self._sweep_members(chat_id, last=actor, now_ms=now_ms)

    @until_committed
    async def _end(self, actor: UserId, chat_id: ChatId, now_ms: int) -> ChangeEvent | None:
        """End the group; None if this owner has ended it before, and only the sweep is left."""
        row = await self._database.get(schema.CHATS, {"chat_id": chat_id})
        me = await self._member(chat_id, actor)
        is_closed = row is not None and row["status"] == values.CLOSED
        if is_closed and me is not None and me.role is Role.OWNER:
            return None
        chat = values.chat_of(row)
        access.check_close(chat, me)
        assert chat is not None
        # Read after the head row: if the members change meanwhile, the version has moved.
        members, _ = await self._members_of(chat)
        facts = ChangeFacts(chat, me, member_ids=list(members))
        change = chat_changes.close_group(facts, now_ms=now_ms)
        [event] = change.events
        await self._fenced([_closing(chat, change.chat), event_write(event, now_ms)])
        return event

    async def _sweep_members(self, chat_id: ChatId, *, last: UserId, now_ms: int) -> None:
        """Delete the rows that are left of the members of a closed chat, those of `last` at the
        end."""
        self._known.forget_head(chat_id)
        with self._database.within_budget():
            found = await self._members(chat_id)
        others = [user_id for user_id in found if user_id != last]
        chunks = [
            others[start : start + MEMBERS_PER_SWEEP_MAX]
            for start in range(0, len(others), MEMBERS_PER_SWEEP_MAX)
        ]
        for user_ids in (*chunks, [last]):
            with self._database.within_budget():
                await self._leave_traces(chat_id, user_ids, now_ms)
            writes = [
                write
                for user_id in user_ids
                for write in (
                    rows.delete(schema.MEMBERSHIPS, {"chat_id": chat_id, "user_id": user_id}),
                    rows.delete(schema.USER_CHATS, {"user_id": user_id, "chat_id": chat_id}),
                    marks.unmark(chat_id, user_id, now_ms=now_ms),
                )
            ]
            with self._database.within_budget():
                await self._database.transact(writes)

    # What concerns one member only.

    @act
    async def hide(self, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
        """Stored in the actor's row of positions, which is read anew wherever chats are listed."""
        chat = await self._chat(chat_id)
        me = await self._member(chat_id, actor)
        head = access.check_hide(chat, me).head
        if not wanted:
            await self._unhide(actor, chat_id)
            return
        assert me is not None
        hidden = marks.hide(chat_id, me, head)
        await self._database.transact([hidden])

    async def _unhide(self, user_id: UserId, chat_id: ChatId) -> None:
        """Show a chat again; nothing happens if it is not hidden."""
        key = {"user_id": user_id, "chat_id": chat_id}
        row = await self._database.get(schema.POSITIONS, key)
        if row is None or "hidden_through" not in row:
            return
        where = {"hidden_through": rows.PRESENT}
        shown = rows.change(schema.POSITIONS, key, {"hidden_through": None}, where=where)
        await self._database.commit([shown])

    @act
    async def mute(self, actor: UserId, chat_id: ChatId, muted_until_ms: int | None) -> Member:
        await self.access_chat(actor, chat_id)
        key = {"chat_id": chat_id, "user_id": actor}
        fields = {"muted_until": muted_until_ms}
        where = {"user_id": rows.PRESENT}
        write = rows.change(schema.MEMBERSHIPS, key, fields, where=where)
        try:
            row = await self._database.write(write, returned="ALL_NEW")
        except ConditionFailed as failed:
            raise NotAMember from failed
        return values.MEMBER.value(row)


def event_write(event: ChangeEvent, now_ms: int) -> Write:
    """The outbox row of a change."""
    return rows.put_new(schema.OUTBOX, values.change_row(event, now_ms=now_ms))


def _fence(before: Chat, change: ChatChange) -> Write:
    where: dict[str, Value] = {"membership_version": before.membership_version}
    if change.joined is not None:
        # Fenced by the head as well, which has become the joiner's `joined_sequence`.
        where["last_sequence"] = before.head
    fields = values.CHAT.changes(before, change.chat)
    return rows.change(schema.CHATS, {"chat_id": before.chat_id}, fields, where=where)


def _member_changes(change: ChatChange, now_ms: int) -> list[Write]:
    chat_id, joined, left = change.chat.chat_id, change.joined, change.left
    writes = [
        rows.change(
            schema.MEMBERSHIPS,
            {"chat_id": chat_id, "user_id": member.user_id},
            {"role": member.role},
            where={"user_id": rows.PRESENT},
        )
        for member in change.roles
    ]
    if joined is not None:
        writes += [
            rows.put_new(schema.MEMBERSHIPS, values.member_row(chat_id, joined)),
            rows.put(schema.USER_CHATS, values.user_chat_row(change.chat, joined)),
            marks.mark(chat_id, joined),
        ]
    if left is not None:
        membership = {"chat_id": chat_id, "user_id": left}
        writes += [
            rows.delete(schema.MEMBERSHIPS, membership, condition="attribute_exists(#user_id)"),
            rows.delete(schema.USER_CHATS, {"user_id": left, "chat_id": chat_id}),
            marks.unmark(chat_id, left, now_ms=now_ms),
        ]
    return writes


def _closing(before: Chat, after: Chat) -> Write:
    changed = values.CHAT.changes(before, after)
    return rows.change(
        schema.CHATS,
        {"chat_id": before.chat_id},
        changed | {"status": values.CLOSED, "closed_at": after.updated_at_ms},
        where={"membership_version": before.membership_version, "status": values.ACTIVE},
    )
