"""The positions of the members of a chat, as far as this process knows: lower bounds. PURE.

A chat is read once, strongly. Then news keep it up to date: of moves that were committed here, and
of moves that other processes tell after their commits. So no number is above the stored one. A
boundary is never above the head up to which the roster is known: only news of the same membership
version raise that head; with another version the chat is read again first.

News reach this process while one of the members has a route to it, lossless or told. If that may
have been interrupted, the chat is forgotten. A chat that does not change is read again now and then
all the same, each time after twice as long.
"""

from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from typing import Final

from tidewire.domain.delivery import NOWHERE, Floors, Positions, effective, lowest_of
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.news import ChatNews, ChatStanding

LOOK_MS: Final = 2_000
LOOK_MEMBER_MS: Final = 200
"""How long a chat is unchanged before it is first read again: so long per member, at least
`LOOK_MS`."""
LOOKS_MAX: Final = 6
"""How many times an unchanged chat is read again; after that only news update it."""


class Standing:
    """The positions of one chat."""

    __slots__ = (
        "chat_id",
        "has_block",
        "head",
        "is_stale",
        "joined",
        "look_at_ms",
        "look_entry_ms",
        "looks",
        "membership_version",
        "positions",
    )

    def __init__(self, read: ChatStanding) -> None:
        self.chat_id = read.chat_id
        self.membership_version = read.membership_version
        self.head = read.head
        """The members are known up to this sequence."""
        self.joined = dict(read.members)
        self.positions = dict(read.positions)
        self.has_block = read.has_block
        self.is_stale = False
        """The chat must be read again before any of its numbers is told."""
        self.looks = 0
        self.look_at_ms = self.look_entry_ms = 0
        """When the chat is read again, and the time of its valid entry in the heap of looks."""

    @property
    def user_ids(self) -> list[UserId]:
        return list(self.joined)

    def position(self, user_id: UserId) -> Positions:
        return self.positions.get(user_id, NOWHERE)

    def moved(self, user_id: UserId, positions: Positions) -> bool:
        """Note a member's positions; True if they are news."""
        before = self.position(user_id)
        after = before.merged(positions)
        if user_id not in self.joined or after == before:
            return False
        self.positions[user_id] = after
        return True

    def floors(self) -> Floors:
        head = self.head
        delivered, read = [], []
        for user_id, joined in self.joined.items():
            own = self.position(user_id)
            delivered.append((user_id, min(head, effective(own.delivered, joined))))
            read.append((user_id, min(head, effective(own.read, joined))))
        version = self.membership_version
        return Floors(self.chat_id, version, head, lowest_of(delivered), lowest_of(read))

    @property
    def look_ms(self) -> int:
        return max(LOOK_MS, LOOK_MEMBER_MS * len(self.joined)) << self.looks


class Standings:
    """A bounded memory; the chat used longest ago is forgotten first. Time only goes forward."""

    def __init__(self, *, chats_max: int, members_max: int) -> None:
        self._chats_max = chats_max
        self._members_max = members_max
        # A dict keeps the order of insertion: using a chat puts it at the end.
        self._chats: dict[ChatId, Standing] = {}
        self._members = 0
        self._chats_of: dict[UserId, set[ChatId]] = {}
        # By chat that is being read: the news that came meanwhile.
        self._heard: dict[ChatId, list[ChatNews]] = {}
        self._looks: list[tuple[int, ChatId]] = []
        self.surprises = 0
        """How many positions a read showed higher than known: their news did not come."""

    def __len__(self) -> int:
        return len(self._chats)

    def find(self, chat_id: ChatId) -> Standing | None:
        """What is known of a chat; None: it has to be read."""
        found = self._chats.get(chat_id)
        if found is None or found.is_stale:
            return None
        del self._chats[chat_id]
        self._chats[chat_id] = found
        return found

    def members_of(self, chat_id: ChatId) -> Collection[UserId]:
        """The members, as far as known, perhaps from before a change."""
        standing = self._chats.get(chat_id)
        return () if standing is None else standing.joined.keys()

    # Reading.

    def begin(self, chat_id: ChatId) -> None:
        """Begin to read a chat, once at a time; `learn` or `failed` must follow."""
        self._heard[chat_id] = []

    def failed(self, chat_id: ChatId) -> None:
        self._heard.pop(chat_id, None)

    def learn(
        self, chat_id: ChatId, read: ChatStanding | None, now_ms: int, *, is_kept: bool
    ) -> Standing | None:
        """Take in a chat that was read; None: there is no such chat. `is_kept`: its news came
        meanwhile and will come; otherwise the result holds now but is not remembered."""
        heard = self._heard.pop(chat_id, [])
        known = self._chats.get(chat_id)
        self.forget(chat_id)
        if read is None:
            return None
        standing = Standing(read)
        if known is not None:
            self._compare(known, standing)
        for news in heard:
            self._apply(standing, news)
        if is_kept:
            self._keep(standing, now_ms)
        return standing

    def _compare(self, known: Standing, read: Standing) -> None:
        """Keep the bounds that were known, so that none falls; read a changed chat again sooner."""
        is_changed = read.membership_version != known.membership_version
        for user_id in read.joined:
            before, after = known.position(user_id), read.position(user_id)
            if after.merged(before) != before:
                is_changed = True
                self.surprises += known.membership_version == read.membership_version
            read.moved(user_id, before)
        if read.membership_version == known.membership_version:
            read.head = max(read.head, known.head)
        read.looks = 0 if is_changed else known.looks

    def _keep(self, standing: Standing, now_ms: int) -> None:
        chat_id = standing.chat_id
        self._chats[chat_id] = standing
        self._members += len(standing.joined)
        for user_id in standing.joined:
            self._chats_of.setdefault(user_id, set()).add(chat_id)
        if standing.looks < LOOKS_MAX:
            standing.look_at_ms = now_ms + standing.look_ms
            self._put_look(standing)
        while len(self._chats) > self._chats_max or (
            self._members > self._members_max and len(self._chats) > 1
        ):
            self.forget(next(iter(self._chats)))

    # News.

    def heard(self, news: ChatNews, now_ms: int) -> bool:
        """Apply news; True if they may change the numbers to tell, or make the chat stale."""
        collected = self._heard.get(news.chat_id)
        if collected is not None:
            collected.append(news)
        standing = self._chats.get(news.chat_id)
        if standing is None:
            # A change of members may raise the boundary; it makes a read under way stale.
            return news.is_change and collected is None
        is_news = self._apply(standing, news)
        if is_news:
            standing.looks = 0
            standing.look_at_ms = max(standing.look_at_ms, now_ms + standing.look_ms)
        return is_news

    def _apply(self, standing: Standing, news: ChatNews) -> bool:
        is_news = False
        for move in news.moves:
            is_news |= standing.moved(move.user_id, move.positions)
        if news.membership_version > standing.membership_version:
            is_news |= not standing.is_stale
            standing.is_stale = True
        elif news.membership_version == standing.membership_version and news.head > standing.head:
            # A higher head changes no number, unless a position is above the head known so far.
            is_capped = any(
                max(own.delivered, own.read) > standing.head for own in standing.positions.values()
            )
            standing.head = news.head
            is_news |= is_capped
        return is_news

    # Forgetting.

    def outdated(self, chat_id: ChatId) -> bool:
        """Mark a chat as stale after a change that no news tells; True if it was known."""
        standing = self._chats.get(chat_id)
        heard = self._heard.get(chat_id)
        if heard is not None:
            # The read may be from before the change: a version above all others makes it stale.
            heard.append(ChatNews(chat_id, membership_version=_ABOVE_ALL))
        if standing is not None:
            standing.is_stale = True
        return standing is not None

    def forget(self, chat_id: ChatId) -> None:
        standing = self._chats.pop(chat_id, None)
        if standing is None:
            return
        self._members -= len(standing.joined)
        for user_id in standing.joined:
            chats = self._chats_of[user_id]
            chats.discard(chat_id)
            if not chats:
                del self._chats_of[user_id]

    def forget_all(self) -> None:
        """Forget all chats, because news may have been lost."""
        for chat_id in [*self._chats, *self._heard]:
            self.outdated(chat_id)
            self.forget(chat_id)

    def unrouted(self, user_ids: Collection[UserId], is_routed: Callable[[UserId], bool]) -> None:
        """These users had no route to this process, if only for a moment. Forget their chats, of
        which it may have missed news, unless another member had a route."""
        gone = set(user_ids)
        chats = {chat_id for one in gone for chat_id in self._chats_of.get(one, ())}
        for chat_id in chats:
            others = (one for one in self._chats[chat_id].joined if one not in gone)
            if not any(map(is_routed, others)):
                self.forget(chat_id)
        for chat_id in self._heard:
            # The members of a chat that is being read are not known yet.
            self.outdated(chat_id)

    # Looking again where nothing changes.

    def looks_due(self, now_ms: int) -> Iterable[ChatId]:
        """The chats to read again now; from here on they are stale."""
        due = []
        while self._looks and self._looks[0][0] <= now_ms:
            entry_ms, chat_id = heappop(self._looks)
            standing = self._chats.get(chat_id)
            if standing is None or standing.is_stale or standing.look_entry_ms != entry_ms:
                continue
            if standing.look_at_ms > now_ms:
                self._put_look(standing)
                continue
            standing.looks += 1
            standing.is_stale = True
            due.append(chat_id)
        return due

    def _put_look(self, standing: Standing) -> None:
        standing.look_entry_ms = standing.look_at_ms
        heappush(self._looks, (standing.look_entry_ms, standing.chat_id))

    def next_look_at_ms(self) -> int | None:
        return self._looks[0][0] if self._looks else None


_ABOVE_ALL: Final = 2**62
