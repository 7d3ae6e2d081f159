"""What a change of a chat writes. Who may make it is tested in test_access.py."""

import pytest
from msgspec.structs import replace

from tidewire.domain import chat_changes
from tidewire.domain.chat_changes import ChangeFacts
from tidewire.domain.chats import (
    Chat,
    ChatType,
    CreateDirect,
    CreateGroup,
    DirectPolicy,
    Member,
    Role,
)
from tidewire.domain.errors import (
    ChatIsFull,
    Forbidden,
    InvalidOperation,
    NotAMember,
    UserNotFound,
)
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, UserId

NOW_MS = 1_700_000_000_000
CHAT = ChatId("chat_1")
ANNA, BEN, CLEO = UserId("user_anna"), UserId("user_ben"), UserId("user_cleo")

GROUP = Chat(
    chat_id=CHAT,
    chat_type=ChatType.GROUP,
    name="lunch",
    created_by=ANNA,
    created_at_ms=1,
    updated_at_ms=1,
    membership_version=4,
    member_count=2,
    head=7,
)


def member(user_id: UserId, role: Role = Role.MEMBER) -> Member:
    return Member(user_id=user_id, role=role, joined_at_ms=1, joined_sequence=3, added_by=ANNA)


OWNER, PLAIN = member(ANNA, Role.OWNER), member(BEN)
FACTS = ChangeFacts(GROUP, OWNER, PLAIN)


def changed(after: Chat, one: Member, change: MembershipChange, by: UserId) -> MembershipChanged:
    return MembershipChanged(
        chat=after,
        user_id=one.user_id,
        change=change,
        role=one.role,
        joined_sequence=one.joined_sequence,
        changed_by=by,
        changed_at_ms=NOW_MS,
    )


def after(steps: int = 1, **changes: object) -> Chat:
    return replace(GROUP, membership_version=4 + steps, updated_at_ms=NOW_MS, **changes)


# New chats.


def direct(other: UserId = BEN, policy: DirectPolicy = DirectPolicy.ANYONE) -> CreateDirect:
    return CreateDirect(chat_id=CHAT, actor_id=ANNA, other_id=other, policy=policy)


def test_direct_chat_is_with_another_person() -> None:
    chat_changes.check_pair(direct())
    with pytest.raises(InvalidOperation, match="another person"):
        chat_changes.check_pair(direct(ANNA))


def begin(missing: tuple[UserId, ...] = (), *, is_blocked: bool = False) -> chat_changes.NewChat:
    return chat_changes.new_direct(
        direct(),
        missing=missing,
        blocks_other=False,
        is_blocked=is_blocked,
        shares_group=False,
        now_ms=NOW_MS,
    )


def test_new_direct_chat_has_two_equal_members_from_its_beginning() -> None:
    new = begin()
    assert (new.chat.chat_type, new.chat.name, new.chat.created_by) == (ChatType.DIRECT, None, ANNA)
    assert (new.chat.membership_version, new.chat.member_count, new.chat.head) == (1, 2, 0)
    assert new.chat.created_at_ms == new.chat.updated_at_ms == NOW_MS
    assert [(one.user_id, one.role, one.joined_sequence) for one in new.members] == [
        (ANNA, Role.MEMBER, 0),
        (BEN, Role.MEMBER, 0),
    ]
    assert new.event == ChatCreated(new.chat, (ANNA, BEN))


def test_new_direct_chat_needs_both_and_no_block_between_them() -> None:
    with pytest.raises(UserNotFound, match=BEN):
        begin((BEN,), is_blocked=True)
    with pytest.raises(Forbidden):
        begin(is_blocked=True)


def group(*member_ids: UserId, name: str = "lunch") -> CreateGroup:
    return CreateGroup(chat_id=CHAT, actor_id=ANNA, name=name, member_ids=member_ids)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (group(BEN, name=" "), InvalidOperation),
        (group(BEN, BEN), InvalidOperation),
        (group(BEN, ANNA), InvalidOperation),
        (group(BEN, CLEO, UserId("user_dora")), ChatIsFull),
        (group(BEN, CLEO), None),
        (group(), None),
    ],
)
def test_group_names_each_other_member_once_and_has_room(
    command: CreateGroup, error: type[Exception] | None
) -> None:
    if error is None:
        chat_changes.check_group(command, members_max=3)
    else:
        with pytest.raises(error):
            chat_changes.check_group(command, members_max=3)


def test_new_group_has_its_creator_as_owner_and_all_its_members() -> None:
    new = chat_changes.new_group(group(CLEO, BEN), missing=(), refuse=False, now_ms=NOW_MS)
    assert (new.chat.chat_type, new.chat.name, new.chat.member_count) == (
        ChatType.GROUP,
        "lunch",
        3,
    )
    assert [(one.user_id, one.role, one.added_by, one.joined_at_ms) for one in new.members] == [
        (ANNA, Role.OWNER, ANNA, NOW_MS),
        (CLEO, Role.MEMBER, ANNA, NOW_MS),
        (BEN, Role.MEMBER, ANNA, NOW_MS),
    ]


def test_new_group_needs_people_who_exist_and_do_not_refuse() -> None:
    with pytest.raises(UserNotFound, match=BEN):
        chat_changes.new_group(group(BEN), missing=(BEN,), refuse=True, now_ms=NOW_MS)
    with pytest.raises(Forbidden):
        chat_changes.new_group(group(BEN), missing=(), refuse=True, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("creator", "chat_type", "is_closed", "error"),
    [
        (ANNA, ChatType.GROUP, False, None),
        (ANNA, ChatType.GROUP, True, NotAMember),
        (BEN, ChatType.GROUP, True, InvalidOperation),
        (ANNA, ChatType.DIRECT, False, InvalidOperation),
    ],
)
def test_group_that_is_found_is_the_creators_own(
    creator: UserId, chat_type: ChatType, is_closed: bool, error: type[Exception] | None
) -> None:
    found = {"created_by": creator, "chat_type": chat_type, "is_closed": is_closed}
    if error is None:
        chat_changes.check_found_group(group(BEN), **found)  # type: ignore[arg-type]
    else:
        with pytest.raises(error):
            chat_changes.check_found_group(group(BEN), **found)  # type: ignore[arg-type]


# Changes.


def test_member_joins_at_the_head() -> None:
    facts = ChangeFacts(GROUP, OWNER)
    change = chat_changes.add_member(facts, CLEO, Role.ADMIN, members_max=3, now_ms=NOW_MS)
    joined = Member(
        user_id=CLEO, role=Role.ADMIN, joined_at_ms=NOW_MS, joined_sequence=7, added_by=ANNA
    )
    assert change.joined == joined
    assert change.chat == after(member_count=3)
    assert change.events == [changed(change.chat, joined, MembershipChange.ADDED, ANNA)]


def test_member_who_refuses_does_not_join() -> None:
    facts = ChangeFacts(GROUP, OWNER, target_refuses=True)
    with pytest.raises(Forbidden):
        chat_changes.add_member(facts, CLEO, Role.MEMBER, members_max=3, now_ms=NOW_MS)


def test_member_is_removed() -> None:
    change = chat_changes.remove_member(FACTS, BEN, now_ms=NOW_MS)
    assert (change.left, change.chat) == (BEN, after(member_count=1))
    assert change.events == [changed(change.chat, PLAIN, MembershipChange.REMOVED, ANNA)]


def test_member_leaves() -> None:
    change = chat_changes.leave(ChangeFacts(GROUP, PLAIN), now_ms=NOW_MS)
    assert (change.left, change.chat) == (BEN, after(member_count=1))
    assert change.events == [changed(change.chat, PLAIN, MembershipChange.REMOVED, BEN)]


def test_member_gets_another_role_once() -> None:
    change = chat_changes.change_role(FACTS, BEN, Role.ADMIN, now_ms=NOW_MS)
    assert change is not None
    admin = replace(PLAIN, role=Role.ADMIN)
    assert change.roles == [admin]
    assert change.events == [changed(after(), admin, MembershipChange.ROLE_CHANGED, ANNA)]
    assert chat_changes.change_role(FACTS, BEN, Role.MEMBER, now_ms=NOW_MS) is None


def test_group_that_is_handed_over_has_one_owner() -> None:
    change = chat_changes.hand_over(FACTS, BEN, now_ms=NOW_MS)
    assert change is not None
    owner, admin = replace(PLAIN, role=Role.OWNER), replace(OWNER, role=Role.ADMIN)
    assert change.roles == [owner, admin]
    assert change.chat == after(2)
    assert change.events == [
        changed(after(1), owner, MembershipChange.ROLE_CHANGED, ANNA),
        changed(after(2), admin, MembershipChange.ROLE_CHANGED, ANNA),
    ]
    again = ChangeFacts(GROUP, admin, owner)
    assert chat_changes.hand_over(again, BEN, now_ms=NOW_MS) is None


def test_group_is_renamed_once() -> None:
    change = chat_changes.rename(FACTS, "dinner", now_ms=NOW_MS)
    assert change is not None
    assert change.chat == after(name="dinner")
    assert change.events == [ChatRenamed(change.chat, ANNA, NOW_MS)]
    assert chat_changes.rename(FACTS, "lunch", now_ms=NOW_MS) is None
    with pytest.raises(InvalidOperation):
        chat_changes.rename(FACTS, "", now_ms=NOW_MS)


def test_group_is_closed_for_all_its_members() -> None:
    change = chat_changes.close_group(replace(FACTS, member_ids=[ANNA, BEN]), now_ms=NOW_MS)
    assert change.is_closed
    assert change.chat == after(member_count=0)
    assert change.events == [ChatClosed(change.chat, (ANNA, BEN), ANNA, NOW_MS)]


# What the actor is told.


def test_outcome_of_a_change_shows_those_concerned_as_they_are_afterwards() -> None:
    admin = replace(PLAIN, role=Role.ADMIN)
    change = chat_changes.change_role(FACTS, BEN, Role.ADMIN, now_ms=NOW_MS)
    assert chat_changes.changed(FACTS, change) == chat_changes.Changed(after(), OWNER, admin)
    new = ChangeFacts(GROUP, OWNER)
    joined = chat_changes.add_member(new, CLEO, Role.MEMBER, members_max=9, now_ms=NOW_MS)
    assert chat_changes.changed(new, joined).target == joined.joined


def test_outcome_of_no_change_is_what_was_found() -> None:
    assert chat_changes.changed(FACTS, None) == chat_changes.Changed(GROUP, OWNER, PLAIN)
