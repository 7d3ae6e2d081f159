"""The command `tidewire audit`: reads the audit trail, beside a running server and without one."""

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidewire.domain.audit import AuditAction
from tidewire.runtime.cli_options import DataDirOption, load_settings, option
from tidewire.runtime.console import say

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tidewire.domain.audit import AuditRecord

FOLLOW_S: Final = 0.5
"""The pause before new lines are looked for again."""
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def audit(
    action: Annotated[
        list[str] | None,
        option(
            "Only this action, or a group of them (login.failed, account). Repeatable.",
            metavar="NAME",
        ),
    ] = None,
    actor: Annotated[
        str | None, option("Only of this user id, or 'operator'.", metavar="ID")
    ] = None,
    target: Annotated[
        str | None, option("Only about this: a user, chat or session id.", metavar="ID")
    ] = None,
    address: Annotated[str | None, option("Only from this address.", metavar="IP")] = None,
    since: Annotated[
        str | None,
        option("Only later than this: 30m, 12h, 7d, or 2031-05-04T11:20:07.412Z.", metavar="TIME"),
    ] = None,
    follow: Annotated[
        bool, option("Go on printing what is added, until Ctrl-C.", "--follow")
    ] = False,
    json: Annotated[bool, option("Print one JSON object a line, for programs.", "--json")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Print the audit trail: who did what, when and from where.

    Reads the files that the server of DIR has written, the oldest record first. In
    a cluster each gateway has its own.
    """
    from tidewire.runtime.audit_files import TrailTail, read_trail
    from tidewire.runtime.clock import SystemClock

    wanted = _Wanted(
        actions=_actions(action or []),
        actor=actor,
        target=target,
        address=address,
        since_ms=_since_ms(since, SystemClock().wall_ms()),
    )
    place = load_settings(data_dir).config.data_dir
    # Opened first, so that records that are added while the rest is read are not missed.
    tail = TrailTail(place)
    count = _print(read_trail(place), wanted, is_json=json)
    if not count and not follow:
        say("the audit trail has no such record")
    while follow:
        time.sleep(FOLLOW_S)
        _print(tail.more(), wanted, is_json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which records are to be shown."""

    actions: frozenset[AuditAction]
    actor: str | None
    target: str | None
    address: str | None
    since_ms: int

    def fits(self, record: "AuditRecord") -> bool:
        return (
            record.action in self.actions
            and record.at_ms >= self.since_ms
            and self.actor in (None, record.actor)
            and self.address in (None, record.address)
            and self.target in (None, record.target, record.chat_id, record.session_id)
        )


def _actions(names: list[str]) -> frozenset[AuditAction]:
    """The actions that these names stand for; all actions, if no name is given."""
    found: list[AuditAction] = []
    for name in names:
        fitting = [
            each for each in AuditAction if each.value == name or each.value.startswith(f"{name}.")
        ]
        if not fitting:
            known = ", ".join(each.value for each in AuditAction)
            raise typer.BadParameter(f"{name!r} is none of {known}", param_hint="'--action'")
        found += fitting
    return frozenset(found or AuditAction)


def _since_ms(text: str | None, now_ms: int) -> int:
    from tidewire.wire.timestamps import parse_time_ms

    if text is None:
        return 0
    length = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if length is not None:
        return now_ms - int(length[1]) * _UNIT_MS[length[2]]
    since_ms = parse_time_ms(text)
    if since_ms is None:
        raise typer.BadParameter(
            f"{text!r} is neither a length (30m, 12h, 7d) nor a time such as "
            "2031-05-04T11:20:07.412Z",
            param_hint="'--since'",
        )
    return since_ms


def _print(records: "Iterable[AuditRecord]", wanted: _Wanted, *, is_json: bool) -> int:
    import msgspec

    from tidewire.runtime.audit_files import fields_of

    count = 0
    for record in records:
        if wanted.fits(record):
            fields = fields_of(record)
            typer.echo(msgspec.json.encode(fields).decode() if is_json else _line(fields))
            count += 1
    return count


def _line(fields: "dict[str, Any]") -> str:
    """For people: time and action, then the rest by name."""
    at, action = fields.pop("at"), fields.pop("action")
    rest = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{at}  {action:<18} {rest}".rstrip()
