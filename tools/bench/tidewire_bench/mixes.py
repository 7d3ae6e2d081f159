"""The mixes of `bench units`: who is there, who writes when, who acknowledges and reads when. PURE.

Each is a steady state, of which whole periods are measured after some that are not. Texts have 84
bytes. There are two gateways and one fan-out worker. Members who are online connect to the gateways
in turns, with one device each, and write in turns. A device acknowledges as our client does
(`client.acks`): at once if it has sent no ack for a while (250 ms in a direct chat, 5 s in a
group), otherwise when that time has passed or ten messages have come; its own messages after 30 s.
All members who are online read every message, each after a random time, evenly spread between two
bounds; a read is sent at once.
"""

from typing import Final

import msgspec


class Bar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a message (of the idle mix: a second) may cost at most; None: that is not bounded."""

    writes: float | None = None
    reads: float | None = None
    requests: float | None = None
    dollars: float | None = None
    """For a million messages (of the idle mix: seconds)."""


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    what: str
    """One line, for the table."""
    members: int
    online: int
    period_s: float
    """From one message to the next; 0: the next when the one before is acknowledged."""
    messages: int
    """How many are measured; 0 in the idle mix, which is measured for `period_s`."""
    warm_up: int
    """How many messages (in the idle mix: periods) come before those that are measured."""
    read_s: tuple[float, float] | None
    """How long after its arrival a message is read; None: no device acknowledges or reads."""
    bar: Bar

    @property
    def is_idle(self) -> bool:
        return not self.messages

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return self.period_s * (self.warm_up + max(1, self.messages))


MIXES: Final = (
    Mix(
        name="append",
        what="append alone, batches of one, no other client online",
        members=2,
        online=1,
        period_s=0.0,
        messages=200,
        warm_up=10,
        read_s=None,
        bar=Bar(writes=9, reads=1, requests=2),
    ),
    Mix(
        name="direct",
        what="direct chat, both online at two gateways, in turns, 1/s",
        members=2,
        online=2,
        period_s=1.0,
        messages=20,
        warm_up=4,
        read_s=(0.4, 0.6),
        bar=Bar(requests=7, dollars=8),
    ),
    Mix(
        name="lively-group",
        what="group of 100, 30 online, 1/s",
        members=100,
        online=30,
        period_s=1.0,
        messages=20,
        warm_up=10,
        read_s=(0.5, 7.0),
        bar=Bar(dollars=25),
    ),
    Mix(
        name="quiet-group",
        what="group of 100, all online, one per 12 s",
        members=100,
        online=100,
        period_s=12.0,
        messages=3,
        warm_up=3,
        read_s=(0.5, 7.0),
        bar=Bar(dollars=130),
    ),
    Mix(
        name="idle",
        what="idle, two gateways, ten people at each; a second",
        members=20,
        online=20,
        period_s=60.0,
        messages=0,
        # For about 70 s after a gateway has started, a relay polls less and less often.
        warm_up=2,
        read_s=None,
        bar=Bar(writes=1, reads=2),
    ),
)

BY_NAME: Final = {mix.name: mix for mix in MIXES}


def described() -> str:
    """All mixes in words, for the command's help."""
    common = (__doc__ or "").partition("\n\n")[2].strip()
    mixes = "\n\n".join(f"{mix.name}: {_sentence(mix)}" for mix in MIXES)
    return f"{common}\n\n{mixes}"


def _sentence(mix: Mix) -> str:
    if mix.is_idle:
        return (
            f"{mix.online} people are connected and quiet; {mix.period_s:g} s are measured, "
            f"{mix.warm_up * mix.period_s:g} s after they have come. What is paid by the second, "
            "relays, sessions and sweeps, counts here and in no other mix."
        )
    pace = f"one message each {mix.period_s:g} s" if mix.period_s else "each after the answer"
    reading = (
        "no device acknowledges"
        if mix.read_s is None
        else f"each reads {mix.read_s[0]:g} to {mix.read_s[1]:g} s after the arrival"
    )
    return (
        f"{mix.members} members, {mix.online} online, {pace}, {mix.messages} measured after "
        f"{mix.warm_up} that are not; {reading}."
    )


class Cost(msgspec.Struct, kw_only=True):
    """What a message, or a second, of a mix has cost."""

    mix: str
    what: str
    writes: float
    reads: float
    requests: float
    dollars: float
    bar: Bar
    by_cause: dict[str, dict[str, float]]
    """Cause and table or operation, then writes, reads, requests."""

    def above(self, bar: Bar | None = None) -> list[str]:
        """What is above the mix's bar, or another one, in words; compares the numbers as shown."""
        bar = self.bar if bar is None else bar
        return [
            f"{self.mix}: {getattr(self, name)} {name}, not {most}"
            for name, most in msgspec.structs.asdict(bar).items()
            if most is not None and getattr(self, name) > most
        ]
