"""The commands of an operator: the same acts beside a running server and without one.

Arguments and results are plain values, because they travel over the control socket. Only the
owner of the data directory can call this, so no password is asked for.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Final

import msgspec

from tidewire.accounts.admin import AccountAdmin
from tidewire.chats.service import ChatService
from tidewire.domain.accounts import Secret, Session
from tidewire.domain.audit import OPERATOR, AuditAction
from tidewire.domain.errors import InvalidOperation, TidewireError
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.messages import MessageBody
from tidewire.domain.users import User
from tidewire.ingest.service import IngestService
from tidewire.ops.erase import erase_messages
from tidewire.ops.recover import decide_recovery, recovery_of
from tidewire.ports.audit import AuditTrail
from tidewire.ports.engine import Engine
from tidewire.ports.inspection import CounterEvidence, NewCounter
from tidewire.ports.runtime import Clock
from tidewire.ports.storage import Storage
from tidewire.runtime.control import Progress, Result, no_progress
from tidewire.runtime.token_keys import KeyActs
from tidewire.wire.forms import fields_of
from tidewire.wire.timestamps import format_time_ms

DAY_MS: Final = 86_400_000


class UnknownOperation(TidewireError):
    """This server cannot do that; perhaps it is of another version."""


_Act = Callable[..., Awaitable[Result]]
_ACTS: Final[dict[str, _Act]] = {}


def _act(name: str) -> Callable[[_Act], _Act]:
    """Register a method of `Operations` under the name that commands use for it."""

    def register(method: _Act) -> _Act:
        _ACTS[name] = method
        return method

    return register


@dataclass(frozen=True, kw_only=True)
class Operations:
    """Each method is one act. Raises TidewireError with a sentence for the operator."""

    admin: AccountAdmin
    chats: ChatService
    ingest: IngestService
    engine: Engine | None
    """The store's engine, if the store is this process's own."""
    store: Storage
    data_dir: Path
    clock: Clock
    trail: AuditTrail
    keys: KeyActs | None = None
    on_keys_read: Callable[[], None] = lambda: None
    """Called on the event loop each time the keys may have changed."""

    async def run(
        self, name: str, arguments: Mapping[str, object], progress: Progress = no_progress
    ) -> Result:
        """Carry out an act, and record in the audit trail whether it succeeded. `progress` is
        called on the event loop."""
        act = _ACTS.get(name)
        if act is None:
            raise UnknownOperation(f"the server does not know how to do {name!r}")
        parameters = signature(act)
        given = dict(arguments)
        if "progress" in parameters.parameters:
            given["progress"] = progress
        try:
            parameters.bind(self, **given)
        except TypeError:
            raise UnknownOperation(
                f"the server does not understand this {name!r}; is it of another version?"
            ) from None
        reason: str | None = "failed"
        try:
            result = await act(self, **given)
            reason = None
        except TidewireError as error:
            reason = type(error).__name__
            raise
        finally:
            self._note(name, arguments, reason)
        return result

    def _note(self, name: str, arguments: Mapping[str, object], reason: str | None) -> None:
        # Only these arguments, because there may be a password among the others.
        username, chat_id = arguments.get("username"), arguments.get("chat_id")
        self.trail.record(
            AuditAction.OPERATOR_COMMAND,
            actor=OPERATOR,
            target=None if username is None else str(username)[:64],
            chat_id=None if chat_id is None else ChatId(str(chat_id)[:64]),
            command=name,
            reason=reason,
        )

    @_act("users.add")
    async def _add_user(
        self,
        username: str,
        password: str | None,
        display_name: str | None,
        external_sub: str | None = None,
    ) -> Result:
        if external_sub is not None:
            made = await self.admin.add_external_user(
                username, external_sub, display_name=display_name
            )
            return _user(made)
        secret = None if password is None else Secret(password)
        return _user(await self.admin.add_user(username, secret, display_name=display_name))

    @_act("users.show")
    async def _show_user(self, username: str | None, external_sub: str | None) -> Result:
        if external_sub is not None:
            return _user(await self.admin.external_user(external_sub))
        return _user(await self.admin.user_named(username or ""))

    @_act("users.list")
    async def _list_users(self, after: str | None) -> Result:
        users = await self.admin.list_users(after=after)
        return {"users": [_user(user) for user in users]}

    @_act("users.passwd")
    async def _set_password(self, username: str, password: str) -> Result:
        user = await self.admin.user_named(username)
        ended = await self.admin.set_password(user.user_id, Secret(password))
        return {**_user(user), "sessions_ended": ended}

    @_act("users.disable")
    async def _disable_user(self, username: str) -> Result:
        user = await self.admin.user_named(username)
        ended = await self.admin.disable_user(user.user_id)
        return {**_user(user), "sessions_ended": ended}

    @_act("users.enable")
    async def _enable_user(self, username: str) -> Result:
        user = await self.admin.user_named(username)
        return _user(await self.admin.enable_user(user.user_id))

    @_act("users.erase")
    async def _erase_user(self, username: str, progress: Progress) -> Result:
        """Erase the name last: until then the same command finds the account, and continues."""
        user, ended = await self.admin.delete_user(username)
        done = await erase_messages(
            self.store,
            self.ingest.send,
            user.user_id,
            lambda erased: progress(erased.messages, erased.messages),
        )
        await self.store.erase_name(user.user_id, now_ms=self.clock.wall_ms())
        find = None if self.engine is None else self.engine.copies
        copies = [] if find is None else await asyncio.to_thread(find, self.data_dir)
        return {
            **_user(user),
            "sessions_ended": ended,
            "messages": done.messages,
            "chats": done.chats,
            "damaged": done.damaged,
            "backups": [str(file) for file in copies],
        }

    @_act("users.delete")
    async def _delete_user(self, username: str) -> Result:
        user, ended = await self.admin.delete_user(username)
        return {**_user(user), "sessions_ended": ended}

    @_act("users.sessions")
    async def _list_sessions(self, username: str) -> Result:
        user = await self.admin.user_named(username)
        sessions = await self.admin.sessions(user.user_id)
        return {"user_id": user.user_id, "sessions": [_session(each) for each in sessions]}

    @_act("users.invite")
    async def _invite(self) -> Result:
        invite = await self.admin.create_invite()
        return {
            "code": invite.code.reveal(),
            "expires_at": format_time_ms(invite.expires_at_ms),
        }

    @_act("tokens.issue")
    async def _issue_token(self, username: str, label: str, days: int | None) -> Result:
        user = await self.admin.user_named(username)
        life_ms = None if days is None else days * DAY_MS
        issued = await self.admin.issue_bot_token(user.user_id, label, life_ms=life_ms)
        return {
            **_user(issued.user),
            "session_id": issued.session.session_id,
            "token": issued.token.reveal(),
            "expires_at": format_time_ms(issued.expires_at_ms),
        }

    @_act("keys.list")
    async def _list_keys(self) -> Result:
        return await self._with_keys(self._key_acts().list)

    @_act("keys.rotate")
    async def _rotate_keys(self, minutes: int | None) -> Result:
        result = await self._with_keys(self._key_acts().rotate, minutes)
        self.trail.record(AuditAction.KEY_ROTATED, actor=OPERATOR, target=str(result["key_id"]))
        return result

    @_act("keys.drop")
    async def _drop_key(self, key_id: str) -> Result:
        result = await self._with_keys(self._key_acts().drop, key_id)
        self.trail.record(
            AuditAction.KEY_ROTATED, actor=OPERATOR, target=key_id[:64], reason="dropped"
        )
        return result

    async def _with_keys(self, act: Callable[..., Result], *arguments: object) -> Result:
        try:
            return await asyncio.to_thread(act, *arguments)
        finally:
            # Each act reads the file first, also one that is refused afterwards.
            self.on_keys_read()

    def _key_acts(self) -> KeyActs:
        if self.keys is None:
            raise InvalidOperation(
                "this server's key is not in a file, so it cannot be listed or changed here"
            )
        return self.keys

    @_act("say")
    async def _say(self, sender: str, recipient: str, text: str) -> Result:
        author, other = (
            await self.admin.user_named(sender),
            await self.admin.user_named(recipient),
        )
        direct = await self.chats.create_direct(author.user_id, other.user_id, is_counted=False)
        chat_id = direct.chat.chat_id
        stored = await self.ingest.send(
            MessageBody(content=text),
            chat_id=chat_id,
            sender_id=author.user_id,
            client_message_id=ClientMessageId(str(uuid.uuid4())),
        )
        return {
            "chat_id": chat_id,
            "message_id": stored.message_id,
            "sequence": stored.sequence,
        }

    @_act("backup")
    async def _backup(self, file: str, progress: Progress) -> Result:
        loop = asyncio.get_running_loop()

        def tell(done: int, total: int) -> None:
            loop.call_soon_threadsafe(progress, done, total)

        if self.engine is None or self.engine.backup is None:
            raise InvalidOperation(
                "this store is not in a data directory: there is no file to copy"
            )
        await asyncio.to_thread(self.engine.backup, self.data_dir, Path(file), tell)
        return {"file": file}

    @_act("recover-counter")
    async def _recover_counter(self, chat_id: str, apply: bool) -> Result:
        if self.engine is None or self.engine.live_repair is None:
            raise InvalidOperation("this store has no counters that could be recovered")
        new: NewCounter | None = None

        def decide(evidence: CounterEvidence) -> NewCounter | None:
            nonlocal new
            new = decide_recovery(ChatId(chat_id), evidence, now_ms=self.clock.wall_ms())
            return new if apply else None

        evidence = await self.engine.live_repair(self.store, ChatId(chat_id), decide)
        recovery = recovery_of(ChatId(chat_id), evidence, new, is_applied=apply)
        return {"recovery": msgspec.to_builtins(recovery)}


def _session(session: Session) -> dict[str, Any]:
    return fields_of(
        session,
        "session_id kind label device_id address client created_at last_active_at expires_at",
    )


def _user(user: User) -> dict[str, Any]:
    return fields_of(user, "user_id username display_name created_at disabled_at deleted_at")
