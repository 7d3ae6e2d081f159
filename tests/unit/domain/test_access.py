"""The table of permissions, row by row, and what each refusal is called."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from tidewire.domain.access import (
    PERMISSIONS,
    Operation,
    cannot_add,
    check_add,
    check_begin_direct,
    check_block,
    check_block_count,
    check_change_role,
    check_close,
    check_founders,
    check_hand_over,
    check_hide,
    check_leave,
    check_member,
    check_remove,
    check_rename,
    may,
    successor,
)
from tidewire.domain.chats import Chat, ChatType, DirectPolicy, Member, Role
from tidewire.domain.errors import (
    AlreadyAMember,
    ChatIsFull,
    Forbidden,
    InvalidOperation,
    NotAMember,
    TidewireError,
    UserNotFound,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import BLOCKS_MAX

# Operation, then what owner, admin and member may do; an outsider may do nothing.
TABLE = """
    rename               yes yes no
    add a member         yes yes no
    add an admin         yes no  no
    remove a member      yes yes no
    remove an admin      yes no  no
    change a role        yes no  no
    hand the group over  yes no  no
    close the group      yes no  no
    leave                no  yes yes
    mute                 yes yes yes
    delete messages of others and mention all  yes yes no
    send                 yes yes yes
    read history         yes yes yes
    see delivery status  yes yes yes
"""
ROWS = [line.rsplit(maxsplit=3) for line in TABLE.strip().splitlines()]

MEMBERS_MAX = 10
TARGET = UserId("user_target")


def chat(chat_type: ChatType = ChatType.GROUP, *, member_count: int = 3) -> Chat:
    return Chat(
        chat_id=ChatId("chat_1"),
        chat_type=chat_type,
        name="lunch",
        created_by=UserId("user_owner"),
        created_at_ms=0,
        updated_at_ms=0,
        membership_version=1,
        member_count=member_count,
        head=0,
    )


def member(role: Role, user_id: str | None = None) -> Member:
    return Member(
        user_id=UserId(user_id or f"user_{role}"),
        role=role,
        joined_at_ms=0,
        joined_sequence=0,
        added_by=UserId("user_owner"),
    )


OWNER, ADMIN, MEMBER = (member(role) for role in (Role.OWNER, Role.ADMIN, Role.MEMBER))


def add(
    actor: Member | None,
    *,
    role: Role = Role.MEMBER,
    target: Member | None = None,
    target_exists: bool = True,
    target_refuses: bool = False,
    group: Chat | None = None,
) -> None:
    check_add(
        group or chat(),
        actor,
        target=target,
        target_exists=target_exists,
        target_id=TARGET,
        target_refuses=target_refuses,
        role=role,
        members_max=MEMBERS_MAX,
    )


def remove(actor: Member | None, target: Member | None, group: Chat | None = None) -> None:
    target_id = TARGET if target is None else target.user_id
    check_remove(group or chat(), actor, target=target, target_id=target_id)


def change_role(
    actor: Member | None, target: Member | None, role: Role = Role.ADMIN, group: Chat | None = None
) -> None:
    check_change_role(group or chat(), actor, target=target, target_id=TARGET, role=role)


def outcome(check: Callable[[], object]) -> type[TidewireError] | None:
    try:
        check()
    except TidewireError as error:
        return type(error)
    return None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_role_may_do_what_the_table_says(row: list[str]) -> None:
    operation, *answers = row
    for role, answer in zip((Role.OWNER, Role.ADMIN, Role.MEMBER), answers, strict=True):
        assert may(role, Operation(operation.strip())) == (answer == "yes"), role


def test_every_operation_has_a_row() -> None:
    assert {row[0].strip() for row in ROWS} == set(Operation) == set(PERMISSIONS)


@pytest.mark.parametrize(
    ("actor", "rename", "add_member", "add_admin", "remove_member", "remove_admin", "role"),
    [
        (OWNER, None, None, None, None, None, None),
        (ADMIN, None, None, Forbidden, None, Forbidden, Forbidden),
        (MEMBER, Forbidden, Forbidden, Forbidden, Forbidden, Forbidden, Forbidden),
        (None, NotAMember, NotAMember, NotAMember, NotAMember, NotAMember, NotAMember),
    ],
    ids=["owner", "admin", "member", "outsider"],
)
def test_checks_decide_as_the_table_says(
    actor: Member | None,
    rename: type[TidewireError] | None,
    add_member: type[TidewireError] | None,
    add_admin: type[TidewireError] | None,
    remove_member: type[TidewireError] | None,
    remove_admin: type[TidewireError] | None,
    role: type[TidewireError] | None,
) -> None:
    plain, admin = member(Role.MEMBER, "user_x"), member(Role.ADMIN, "user_y")
    assert outcome(lambda: check_rename(chat(), actor)) is rename
    assert outcome(lambda: add(actor)) is add_member
    assert outcome(lambda: add(actor, role=Role.ADMIN)) is add_admin
    assert outcome(lambda: remove(actor, plain)) is remove_member
    assert outcome(lambda: remove(actor, admin)) is remove_admin
    assert outcome(lambda: change_role(actor, plain)) is role


def test_everybody_but_the_owner_may_leave() -> None:
    assert outcome(lambda: check_leave(chat(), OWNER)) is InvalidOperation
    assert outcome(lambda: check_leave(chat(), ADMIN)) is None
    assert outcome(lambda: check_leave(chat(), MEMBER)) is None
    assert outcome(lambda: check_leave(chat(), None)) is NotAMember


def test_owner_who_leaves_is_told_what_to_do_instead() -> None:
    with pytest.raises(InvalidOperation, match=r"hand the group over .* or close it"):
        check_leave(chat(), OWNER)


def hand_over(
    actor: Member | None, target: Member | None = MEMBER, group: Chat | None = None
) -> object:
    return check_hand_over(group or chat(), actor, target=target, target_id=TARGET)


def test_only_the_owner_hands_a_group_over_or_closes_it() -> None:
    assert hand_over(OWNER)
    assert outcome(lambda: check_close(chat(), OWNER)) is None
    for actor, expected in ((ADMIN, Forbidden), (MEMBER, Forbidden), (None, NotAMember)):
        assert outcome(partial(hand_over, actor)) is expected
        assert outcome(partial(check_close, chat(), actor)) is expected
    direct = chat(ChatType.DIRECT)
    assert outcome(lambda: hand_over(MEMBER, MEMBER, direct)) is InvalidOperation
    assert outcome(lambda: check_close(direct, MEMBER)) is InvalidOperation


def test_group_is_handed_over_to_a_member_and_once() -> None:
    assert outcome(lambda: hand_over(OWNER, None)) is UserNotFound
    assert outcome(lambda: hand_over(None, OWNER)) is NotAMember
    # A retry: the former owner is an admin now.
    assert not hand_over(ADMIN, OWNER)
    assert not hand_over(OWNER, OWNER)
    gone = partial(check_hand_over, None, ADMIN, target=OWNER, target_id=TARGET)
    assert outcome(gone) is NotAMember


def test_direct_chat_is_hidden_by_its_members() -> None:
    direct = chat(ChatType.DIRECT)
    assert check_hide(direct, MEMBER) is direct
    assert outcome(lambda: check_hide(direct, None)) is NotAMember
    assert outcome(lambda: check_hide(None, MEMBER)) is NotAMember
    assert outcome(lambda: check_hide(chat(), MEMBER)) is InvalidOperation


def serving(role: Role, since_ms: int, name: str) -> Member:
    return msgspec.structs.replace(member(role, f"user_{name}"), joined_at_ms=since_ms)


def test_successor_is_the_longest_serving_admin_then_member() -> None:
    owner = serving(Role.OWNER, 0, "owner")
    old, young = serving(Role.MEMBER, 1, "old"), serving(Role.MEMBER, 9, "young")
    admin, newer = serving(Role.ADMIN, 8, "b"), serving(Role.ADMIN, 8, "c")
    assert successor([owner, young, newer, old, admin], owner.user_id) == admin
    assert successor([young, owner, old], owner.user_id) == old
    assert successor([owner], owner.user_id) is None


def test_direct_chat_never_changes() -> None:
    direct = chat(ChatType.DIRECT)
    other = member(Role.MEMBER, "user_other")
    for check in (
        lambda: check_rename(direct, MEMBER),
        lambda: add(MEMBER, group=direct),
        lambda: remove(MEMBER, other, direct),
        lambda: change_role(MEMBER, other, group=direct),
        lambda: check_leave(direct, MEMBER),
    ):
        assert outcome(check) is InvalidOperation


def test_outsider_is_not_told_whether_the_chat_or_the_other_exists() -> None:
    direct = chat(ChatType.DIRECT)
    for here in (chat(), direct, None):
        for check in (check_rename, check_leave, check_member):
            assert outcome(partial(check, here, None)) is NotAMember
    assert outcome(lambda: add(None, target_exists=False)) is NotAMember
    assert outcome(lambda: add(None, target=MEMBER)) is NotAMember
    assert outcome(lambda: add(None, group=chat(member_count=MEMBERS_MAX))) is NotAMember
    assert outcome(lambda: remove(None, None)) is NotAMember
    assert outcome(lambda: remove(None, OWNER)) is NotAMember
    assert outcome(lambda: change_role(None, None)) is NotAMember


def test_membership_in_a_chat_that_is_gone_is_no_membership() -> None:
    assert outcome(lambda: check_rename(None, OWNER)) is NotAMember
    assert outcome(lambda: check_leave(None, OWNER)) is NotAMember
    assert outcome(lambda: check_member(None, OWNER)) is NotAMember
    assert check_member(chat(), MEMBER) is MEMBER


def test_group_has_one_owner_for_ever() -> None:
    assert outcome(lambda: add(OWNER, role=Role.OWNER)) is InvalidOperation
    assert outcome(lambda: change_role(OWNER, MEMBER, Role.OWNER)) is InvalidOperation
    assert outcome(lambda: change_role(OWNER, OWNER, Role.MEMBER)) is InvalidOperation
    assert outcome(lambda: remove(ADMIN, OWNER)) is InvalidOperation
    assert outcome(lambda: remove(OWNER, OWNER)) is InvalidOperation


def test_adding_needs_a_user_who_is_not_there_yet_and_room() -> None:
    assert outcome(lambda: add(OWNER, target_exists=False)) is UserNotFound
    assert outcome(lambda: add(OWNER, target=MEMBER)) is AlreadyAMember
    assert outcome(lambda: add(OWNER, group=chat(member_count=MEMBERS_MAX - 1))) is None
    assert outcome(lambda: add(OWNER, group=chat(member_count=MEMBERS_MAX))) is ChatIsFull
    full = chat(member_count=MEMBERS_MAX)
    assert outcome(lambda: add(OWNER, target=MEMBER, group=full)) is AlreadyAMember


def test_person_who_refuses_is_not_added_and_the_refusal_comes_last() -> None:
    assert outcome(lambda: add(OWNER, target_refuses=True)) is Forbidden
    assert outcome(lambda: add(None, target_refuses=True)) is NotAMember
    assert outcome(lambda: add(OWNER, target=MEMBER, target_refuses=True)) is AlreadyAMember
    full = chat(member_count=MEMBERS_MAX)
    assert outcome(lambda: add(OWNER, target_refuses=True, group=full)) is ChatIsFull
    check_founders(refuse=False)
    refused = []
    checks: tuple[Callable[[], None], ...] = (
        lambda: add(OWNER, target_refuses=True),
        lambda: check_founders(refuse=True),
    )
    for check in checks:
        with pytest.raises(Forbidden) as told:
            check()
        refused.append(str(told.value))
    assert refused == [str(cannot_add())] * 2


def test_removing_needs_somebody_else_who_is_there() -> None:
    assert outcome(lambda: remove(OWNER, None)) is UserNotFound
    assert outcome(lambda: remove(ADMIN, ADMIN)) is InvalidOperation
    assert outcome(lambda: remove(MEMBER, MEMBER)) is InvalidOperation


def test_changing_a_role_needs_somebody_who_is_there() -> None:
    assert outcome(lambda: change_role(OWNER, None)) is UserNotFound
    assert outcome(lambda: change_role(OWNER, ADMIN, Role.MEMBER)) is None
    assert outcome(lambda: change_role(OWNER, MEMBER, Role.ADMIN)) is None


def test_refusal_names_the_role_and_the_deed() -> None:
    with pytest.raises(Forbidden, match="a chat's member may not rename"):
        check_rename(chat(), MEMBER)
    with pytest.raises(InvalidOperation, match="a direct chat never changes"):
        check_rename(chat(ChatType.DIRECT), MEMBER)


@pytest.mark.parametrize("policy", DirectPolicy)
@pytest.mark.parametrize("shares_group", [True, False])
def test_direct_chat_is_begun_as_the_policy_lets(policy: DirectPolicy, shares_group: bool) -> None:
    begin = partial(check_begin_direct, policy, shares_group=shares_group)
    allowed = policy is DirectPolicy.ANYONE or (
        policy is DirectPolicy.SHARED_GROUP and shares_group
    )
    if allowed:
        begin(blocks_other=False, is_blocked=False)
    else:
        with pytest.raises(Forbidden):
            begin(blocks_other=False, is_blocked=False)
    with pytest.raises(Forbidden, match="unblock"):
        begin(blocks_other=True, is_blocked=False)
    with pytest.raises(Forbidden, match="cannot write"):
        begin(blocks_other=False, is_blocked=True)


def test_user_blocks_others_up_to_a_bound() -> None:
    check_block(TARGET, UserId("user_other"))
    check_block_count(BLOCKS_MAX - 1)
    with pytest.raises(InvalidOperation, match="yourself"):
        check_block(TARGET, TARGET)
    with pytest.raises(InvalidOperation, match=str(BLOCKS_MAX)):
        check_block_count(BLOCKS_MAX)
