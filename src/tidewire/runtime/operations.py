"""What an operator can have done: the same acts beside a running server and without one.

Arguments and results are plain values, because they travel over the control socket. Whoever may
call this owns the data directory, so nobody is asked for a password.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tidewire.accounts.admin import AccountAdmin
from tidewire.chats.service import ChatService
from tidewire.domain.accounts import Secret, Session
from tidewire.domain.audit import OPERATOR, AuditAction
from tidewire.domain.errors import InvalidOperation, TidewireError
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.users import User
from tidewire.engines.sqlite.backup import backup
from tidewire.engines.sqlite.storage import SqliteStorage
from tidewire.ingest.service import IngestService
from tidewire.ops.recover import decide_recovery, recovery_of
from tidewire.ports.audit import AuditTrail
from tidewire.ports.inspection import CounterEvidence, NewCounter
from tidewire.ports.runtime import Clock
from tidewire.runtime.control import Progress, Result, no_progress
from tidewire.runtime.key_acts import KeyActs
from tidewire.wire.timestamps import format_time_ms

DAY_MS: Final = 86_400_000


class UnknownOperation(TidewireError):
    """This server cannot do that; perhaps it is of another version."""


class Operations:
    """Each method is one act. Raises TidewireError with a sentence for the operator."""

    def __init__(
        self,
        *,
        admin: AccountAdmin,
        chats: ChatService,
        ingest: IngestService,
        sqlite: SqliteStorage | None,
        data_dir: Path,
        clock: Clock,
        trail: AuditTrail,
        keys: KeyActs | None = None,
        on_keys_read: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_keys_read` is called on the event loop whenever the keys may be others."""
        self._admin = admin
        self._chats = chats
        self._ingest = ingest
        self._sqlite = sqlite
        self._data_dir = data_dir
        self._clock = clock
        self._trail = trail
        self._keys = keys
        self._on_keys_read = on_keys_read
        self._acts: Mapping[str, Callable[..., Awaitable[Result]]] = {
            "users.add": self._add_user,
            "users.list": self._list_users,
            "users.show": self._show_user,
            "users.passwd": self._set_password,
            "users.disable": self._disable_user,
            "users.enable": self._enable_user,
            "users.delete": self._delete_user,
            "users.invite": self._invite,
            "users.sessions": self._list_sessions,
            "tokens.issue": self._issue_token,
            "keys.list": self._list_keys,
            "keys.rotate": self._rotate_keys,
            "keys.drop": self._drop_key,
            "say": self._say,
            "recover-counter": self._recover_counter,
        }

    async def run(
        self, name: str, arguments: Mapping[str, object], progress: Progress = no_progress
    ) -> Result:
        """Do it, and note in the audit trail that it was done or not. `progress` is called on the
        event loop."""
        if name != "backup" and name not in self._acts:
            raise UnknownOperation(f"the server does not know how to do {name!r}")
        reason: str | None = "failed"
        try:
            if name == "backup":
                result = await self._backup(progress, **arguments)  # type: ignore[arg-type]
            else:
                result = await self._acts[name](**arguments)
            reason = None
        except TidewireError as error:
            reason = type(error).__name__
            raise
        finally:
            self._note(name, arguments, reason)
        return result

    def _note(self, name: str, arguments: Mapping[str, object], reason: str | None) -> None:
        # Of the arguments only these: there may be a password among the others.
        username, chat_id = arguments.get("username"), arguments.get("chat_id")
        self._trail.record(
            AuditAction.OPERATOR_COMMAND,
            actor=OPERATOR,
            target=None if username is None else str(username)[:64],
            chat_id=None if chat_id is None else ChatId(str(chat_id)[:64]),
            command=name,
            reason=reason,
        )

    async def _add_user(
        self,
        username: str,
        password: str | None,
        display_name: str | None,
        external_sub: str | None = None,
    ) -> Result:
        if external_sub is not None:
            made = await self._admin.add_external_user(
                username, external_sub, display_name=display_name
            )
            return _user(made)
        secret = None if password is None else Secret(password)
        return _user(await self._admin.add_user(username, secret, display_name=display_name))

    async def _show_user(self, username: str | None, external_sub: str | None) -> Result:
        if external_sub is not None:
            return _user(await self._admin.external_user(external_sub))
        return _user(await self._admin.user_named(username or ""))

    async def _list_users(self, after: str | None) -> Result:
        users = await self._admin.list_users(after=after)
        return {"users": [_user(user) for user in users]}

    async def _set_password(self, username: str, password: str) -> Result:
        user = await self._admin.user_named(username)
        ended = await self._admin.set_password(user.user_id, Secret(password))
        return {**_user(user), "sessions_ended": ended}

    async def _disable_user(self, username: str) -> Result:
        user = await self._admin.user_named(username)
        ended = await self._admin.disable_user(user.user_id)
        return {**_user(user), "sessions_ended": ended}

    async def _enable_user(self, username: str) -> Result:
        user = await self._admin.user_named(username)
        return _user(await self._admin.enable_user(user.user_id))

    async def _delete_user(self, username: str) -> Result:
        user, ended = await self._admin.delete_user(username)
        return {**_user(user), "sessions_ended": ended}

    async def _list_sessions(self, username: str) -> Result:
        user = await self._admin.user_named(username)
        sessions = await self._admin.sessions(user.user_id)
        return {"user_id": user.user_id, "sessions": [_session(each) for each in sessions]}

    async def _invite(self) -> Result:
        invite = await self._admin.create_invite()
        return {
            "code": invite.code.reveal(),
            "expires_at": format_time_ms(invite.expires_at_ms),
        }

    async def _issue_token(self, username: str, label: str, days: int | None) -> Result:
        user = await self._admin.user_named(username)
        life_ms = None if days is None else days * DAY_MS
        issued = await self._admin.issue_bot_token(user.user_id, label, life_ms=life_ms)
        return {
            **_user(issued.user),
            "session_id": issued.session.session_id,
            "token": issued.token.reveal(),
            "expires_at": format_time_ms(issued.expires_at_ms),
        }

    async def _list_keys(self) -> Result:
        return await self._with_keys(self._key_acts().list)

    async def _rotate_keys(self, minutes: int | None) -> Result:
        result = await self._with_keys(self._key_acts().rotate, minutes)
        self._trail.record(AuditAction.KEY_ROTATED, actor=OPERATOR, target=str(result["key_id"]))
        return result

    async def _drop_key(self, key_id: str) -> Result:
        result = await self._with_keys(self._key_acts().drop, key_id)
        self._trail.record(
            AuditAction.KEY_ROTATED, actor=OPERATOR, target=key_id[:64], reason="dropped"
        )
        return result

    async def _with_keys(self, act: Callable[..., Result], *arguments: object) -> Result:
        try:
            return await asyncio.to_thread(act, *arguments)
        finally:
            # Each reads the file first, also one that is refused then.
            self._on_keys_read()

    def _key_acts(self) -> KeyActs:
        if self._keys is None:
            raise InvalidOperation("this server's key is in no file")
        return self._keys

    async def _say(self, sender: str, recipient: str, text: str) -> Result:
        author, other = (
            await self._admin.user_named(sender),
            await self._admin.user_named(recipient),
        )
        direct = await self._chats.create_direct(author.user_id, other.user_id, is_counted=False)
        chat_id = direct.chat.chat_id
        stored = await self._ingest.send(
            chat_id=chat_id,
            sender_id=author.user_id,
            client_message_id=ClientMessageId(str(uuid.uuid4())),
            content=text,
        )
        return {
            "chat_id": chat_id,
            "message_id": stored.message_id,
            "sequence": stored.sequence,
        }

    async def _backup(self, progress: Progress, file: str) -> Result:
        loop = asyncio.get_running_loop()

        def tell(done: int, total: int) -> None:
            loop.call_soon_threadsafe(progress, done, total)

        await asyncio.to_thread(backup, self._data_dir, Path(file), tell)
        return {"file": file}

    async def _recover_counter(self, chat_id: str, apply: bool) -> Result:
        if self._sqlite is None:
            raise InvalidOperation("this store has no counters that could be recovered")
        new: NewCounter | None = None

        def decide(evidence: CounterEvidence) -> NewCounter | None:
            nonlocal new
            new = decide_recovery(ChatId(chat_id), evidence, now_ms=self._clock.wall_ms())
            return new if apply else None

        evidence = await self._sqlite.repair_counter(ChatId(chat_id), decide)
        recovery = recovery_of(ChatId(chat_id), evidence, new, is_applied=apply)
        return {"recovery": msgspec.to_builtins(recovery)}


def _session(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "kind": session.kind.value,
        "label": session.label,
        "device_id": session.device_id,
        "address": session.address,
        "client": session.client,
        "created_at": format_time_ms(session.created_at_ms),
        "last_active_at": format_time_ms(session.last_active_at_ms),
        "expires_at": format_time_ms(session.expires_at_ms),
    }


def _user(user: User) -> dict[str, Any]:
    return {
        "user_id": user.user_id,
        "username": user.username,
        "display_name": user.display_name,
        "created_at": format_time_ms(user.created_at_ms),
        "disabled_at": (
            None if user.disabled_at_ms is None else format_time_ms(user.disabled_at_ms)
        ),
        "deleted_at": None if user.deleted_at_ms is None else format_time_ms(user.deleted_at_ms),
    }
