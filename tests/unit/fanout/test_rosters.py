"""Rosters: never older than the event they serve, never replaced by an older one, bounded."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.chats import Chat, ChatType, Role, Roster
from tidewire.domain.events import ChatCreated, ChatRenamed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId, UserId
from tidewire.fanout.rosters import Rosters

CHAT = ChatId("chat_1")
ANN, BEN, CEM = UserId("user_ann"), UserId("user_ben"), UserId("user_cem")


def chat(version: int, chat_id: ChatId = CHAT) -> Chat:
    return Chat(
        chat_id=chat_id,
        chat_type=ChatType.GROUP,
        name="team",
        created_by=ANN,
        created_at_ms=1,
        updated_at_ms=1,
        membership_version=version,
        member_count=2,
        head=0,
    )


def changed(
    version: int, change: MembershipChange, user_id: UserId, *, joined_sequence: int = 0
) -> MembershipChanged:
    return MembershipChanged(
        chat=chat(version),
        user_id=user_id,
        change=change,
        role=Role.MEMBER,
        joined_sequence=joined_sequence,
        changed_by=ANN,
        changed_at_ms=1,
    )


def rosters(*, rosters_max: int = 10, users_max: int = 100) -> Rosters:
    return Rosters(rosters_max=rosters_max, users_max=users_max)


def users(held: Rosters, version: int) -> list[UserId] | None:
    found = held.find(CHAT, version, 0)
    return None if found is None else list(found.user_ids)


def test_roster_is_known_from_the_creation_of_its_chat() -> None:
    held = rosters()
    held.follow(ChatCreated(chat(1), (ANN, BEN)), 0)
    assert users(held, 1) == [ANN, BEN]


def test_roster_is_not_given_for_an_event_that_is_newer() -> None:
    held = rosters()
    held.learn(Roster(CHAT, 3, (ANN,)), 0)
    assert users(held, 3) == [ANN]
    assert users(held, 4) is None


def test_roster_follows_changes_one_by_one() -> None:
    held = rosters()
    held.follow(ChatCreated(chat(1), (ANN, BEN)), 0)
    held.follow(changed(2, MembershipChange.ADDED, CEM), 0)
    assert users(held, 2) == [ANN, BEN, CEM]
    held.follow(changed(3, MembershipChange.ROLE_CHANGED, CEM), 0)
    held.follow(ChatRenamed(chat(4), ANN, 1), 0)
    assert users(held, 4) == [ANN, BEN, CEM]
    held.follow(changed(5, MembershipChange.REMOVED, BEN), 0)
    assert users(held, 5) == [ANN, CEM]


def test_roster_follows_who_joined_at_which_message() -> None:
    held = rosters()
    held.follow(ChatCreated(chat(1), (ANN, BEN)), 0)
    held.follow(changed(2, MembershipChange.REMOVED, BEN), 0)
    held.follow(changed(3, MembershipChange.ADDED, BEN, joined_sequence=5), 0)
    held.follow(ChatRenamed(chat(4), ANN, 1), 0)
    found = held.find(CHAT, 4, 0)
    assert found is not None
    assert (found.readers_of(5), found.readers_of(6)) == ((ANN,), (ANN, BEN))
    held.follow(changed(5, MembershipChange.REMOVED, BEN), 0)
    found = held.find(CHAT, 5, 0)
    assert found is not None
    assert (found.joined, found.joined_max) == ({}, 0)


def test_roster_is_forgotten_when_a_change_was_missed() -> None:
    held = rosters()
    held.follow(ChatCreated(chat(1), (ANN, BEN)), 0)
    held.follow(changed(3, MembershipChange.ADDED, CEM), 0)
    assert users(held, 0) is None


def test_roster_ignores_a_change_that_it_knows_or_whose_chat_it_does_not() -> None:
    held = rosters()
    held.follow(changed(2, MembershipChange.ADDED, CEM), 0)
    assert len(held) == 0
    held.learn(Roster(CHAT, 5, (ANN,)), 0)
    held.follow(changed(4, MembershipChange.ADDED, CEM), 0)
    assert users(held, 5) == [ANN]


def test_roster_is_never_replaced_by_an_older_one() -> None:
    held = rosters()
    held.learn(Roster(CHAT, 5, (ANN,)), 0)
    held.learn(Roster(CHAT, 4, (ANN, BEN)), 0)
    assert users(held, 5) == [ANN]


def test_rosters_forget_the_one_used_longest_ago_at_the_bound() -> None:
    held = rosters(rosters_max=2)
    for number in (1, 2):
        held.learn(Roster(ChatId(f"chat_{number}"), 1, (ANN,)), 0)
    assert held.find(ChatId("chat_1"), 1, 0) is not None
    held.learn(Roster(ChatId("chat_3"), 1, (ANN,)), 0)
    assert held.find(ChatId("chat_2"), 1, 0) is None
    assert held.find(ChatId("chat_1"), 1, 0) is not None


def test_rosters_are_bounded_by_members_too_but_keep_the_newest() -> None:
    held = rosters(users_max=3)
    held.learn(Roster(ChatId("chat_1"), 1, (ANN, BEN)), 0)
    held.learn(Roster(ChatId("chat_2"), 1, (ANN, BEN, CEM, UserId("user_dee"))), 0)
    assert held.find(ChatId("chat_1"), 1, 0) is None
    assert held.find(ChatId("chat_2"), 1, 0) is not None


@given(st.integers(), st.integers(1, 60))
def test_rosters_agree_with_the_membership_they_follow(seed: int, steps: int) -> None:
    random = Random(seed)
    held = rosters()
    members, version = [ANN, BEN], 1
    held.follow(ChatCreated(chat(1), (ANN, BEN)), 0)
    for number in range(steps):
        version += 1
        if len(members) > 1 and random.random() < 0.5:
            gone = members.pop(random.randrange(len(members)))
            held.follow(changed(version, MembershipChange.REMOVED, gone), 0)
        else:
            members.append(UserId(f"user_{number}"))
            held.follow(changed(version, MembershipChange.ADDED, members[-1]), 0)
        assert users(held, version) == members
        assert held.users_count == len(members)


def test_change_outdates_what_is_being_read_of_that_chat_only() -> None:
    held = rosters()
    held.learn(Roster(CHAT, 3, (ANN,)), 0)
    early = held.begin_reading(CHAT, 0)
    elsewhere = held.begin_reading(ChatId("chat_2"), 0)
    held.changed(CHAT)
    late = held.begin_reading(CHAT, 0)
    assert users(held, 0) is None
    outdated = [reading.is_outdated for reading in (early, elsewhere, late)]
    assert outdated == [True, False, False]
    for reading in (early, elsewhere, late):
        held.end_reading(reading)
    assert held.readings_count == 0


def test_roster_is_good_for_a_while_where_no_changes_are_heard_of() -> None:
    memory = Rosters(rosters_max=10, users_max=100, age_ms_max=2_000)
    memory.learn(Roster(CHAT, 3, (ANN,)), 1_000)
    assert memory.find(CHAT, 0, 3_000) is not None
    assert memory.find(CHAT, 0, 3_001) is None
    # Whoever knows the version needs no clock.
    assert memory.find(CHAT, 3, 99_000) is not None
    memory.learn(Roster(CHAT, 3, (ANN, BEN)), 3_001)
    found = memory.find(CHAT, 0, 5_001)
    assert found is not None
    assert found.user_ids == (ANN, BEN)


def test_ages_are_forgotten_with_their_rosters() -> None:
    memory = Rosters(rosters_max=1, users_max=100, age_ms_max=2_000)
    for number in range(3):
        memory.learn(Roster(ChatId(f"chat_{number}"), 1, (ANN,)), 0)
    assert len(memory) == len(memory._as_of_ms) == 1


def test_roster_is_good_for_ever_where_changes_are_heard_of() -> None:
    memory = rosters()
    memory.learn(Roster(CHAT, 3, (ANN,)), 0)
    assert memory.find(CHAT, 0, 10**12) is not None


def test_all_rosters_are_forgotten_also_those_being_read() -> None:
    memory = rosters()
    memory.learn(Roster(CHAT, 3, (ANN,)), 0)
    reading = memory.begin_reading(ChatId("chat_2"), 0)
    memory.forget_all()
    assert memory.find(CHAT, 0, 0) is None
    assert reading.is_outdated
    memory.end_reading(reading)
