import pytest

from tests.unit.engines.dynamodb.samples import (
    ANNA,
    BEN,
    CHAT,
    NOW_MS,
    a_chat,
    a_member,
    a_message,
)
from tidewire.domain.accounts import Session, SessionKind
from tidewire.domain.chats import Role
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.events import (
    ChangeEvent,
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ConnectionId, SessionId
from tidewire.domain.outbox import (
    Lease,
    LeaseTable,
    PersistedMessages,
    Unreadable,
    change_key,
    messages_key,
    shard_of,
)
from tidewire.domain.users import User
from tidewire.engines.dynamodb import values
from tidewire.engines.dynamodb.rows import Row, Value, pack, unpack
from tidewire.engines.dynamodb.values import (
    change_row,
    lease_key,
    lease_table_of,
    messages_row,
    outbox_row_of,
    relay_key,
    session_row,
    user_session_row,
)

USER = User(
    user_id=ANNA,
    username="Anna",
    display_name="Anna ✨",
    created_at_ms=NOW_MS,
    updated_at_ms=NOW_MS,
)


def stored(row: dict[str, Value]) -> Row:
    """A row as it comes back from the database."""
    return unpack(pack(row))


def test_fields_that_are_not_stored_have_no_attribute() -> None:
    assert "block_changes" not in stored(values.chat_row(a_chat()))
    assert values.session_row(LOGIN, refresh_hash=None)["token_generation"] == LOGIN.generation


def test_head_row_says_which_message_was_the_last_only_if_it_is_not_the_head() -> None:
    row = stored(values.chat_row(a_chat()))
    assert (values.last_message(row), values.last_mention(row)) == (7, 0)
    row |= {"last_message": 5, "last_mention": 4}
    assert (values.last_message(row), values.last_mention(row)) == (5, 4)


def test_chat_that_was_closed_is_there_for_the_server_only() -> None:
    closed = stored(values.chat_row(a_chat(), status=values.CLOSED))
    assert values.chat_of(closed) is None
    assert values.any_chat_of(closed) == a_chat()
    assert values.any_chat_of(stored(values.chat_row(a_chat(), status=values.PENDING))) is None
    assert values.any_chat_of(None) is None


def test_chat_comes_back_as_it_was() -> None:
    for chat in (a_chat(), a_chat(name=None)):
        assert values.chat_of(stored(values.chat_row(chat))) == chat


def test_chat_is_not_seen_while_it_is_being_made() -> None:
    assert values.chat_of(stored(values.chat_row(a_chat(), status=values.PENDING))) is None
    assert values.chat_of(None) is None


def test_member_comes_back_as_it_was() -> None:
    for member in (a_member(), a_member(muted_until_ms=5)):
        row = stored(values.member_row(a_chat().chat_id, member))
        assert values.member_of(row) == member
        state = values.member_state_of(row)
        assert state == values.MemberState(member, is_blocked=False)
    assert values.member_of(None) is None
    assert values.member_state_of(None) is None


def test_member_state_knows_a_block() -> None:
    row = stored(values.member_row(a_chat().chat_id, a_member(), is_blocked=True))
    state = values.member_state_of(row)
    assert state is not None
    assert state.is_blocked


def test_user_chat_row_is_what_a_list_is_sorted_by() -> None:
    row = values.user_chat_row(a_chat(), a_member())
    assert row == {
        "user_id": ANNA,
        "chat_id": "chat_1",
        "chat_type": "group",
        "joined_at": NOW_MS,
    }


def test_positions_begin_nowhere() -> None:
    assert values.positions_of(None) == NOWHERE
    row = {"last_acked_sequence": 4, "last_read_sequence": 3}
    assert values.positions_of(row) == Positions(4, 3)


def test_user_comes_back_as_he_was() -> None:
    row = stored(values.user_row(USER, password_hash="hash"))
    assert values.USER.value(row) == USER
    assert row["password_hash"] == "hash"


def test_names_are_kept_by_their_first_letter_without_case() -> None:
    assert values.name_row(USER) == {"initial": "a", "username": "anna", "user_id": ANNA}


# Sessions.


LOGIN = Session(
    session_id=SessionId("sess_1"),
    user_id=ANNA,
    device_id="device",
    generation=2,
    created_at_ms=NOW_MS,
    last_active_at_ms=NOW_MS + 1,
    expires_at_ms=NOW_MS + 1,
)
BOT = Session(
    session_id=SessionId("sess_2"),
    user_id=ANNA,
    device_id=None,
    kind=SessionKind.BOT,
    label="a bot",
    created_at_ms=NOW_MS,
    last_active_at_ms=NOW_MS,
    expires_at_ms=NOW_MS + 1000,
)


def test_sessions_come_back_as_they_were() -> None:
    for session, refresh_hash in ((LOGIN, b"hash"), (BOT, None)):
        row = unpack(pack(session_row(session, refresh_hash=refresh_hash)))
        assert values.SESSION.value(row) == session
        assert row.get("refresh_token_hash") == refresh_hash


def test_refresh_moves_only_what_is_there() -> None:
    assert values.moving_fields(LOGIN) == {
        "last_active_at": NOW_MS + 1,
        "expires_at": NOW_MS + 1,
        "ttl": NOW_MS // 1000 + 1,
    }


def test_stored_session_has_its_tokens() -> None:
    row = unpack(pack(session_row(LOGIN, refresh_hash=b"hash")))
    found = values.stored_session_of(row | {"prev_token_hash": b"before"})
    assert (found.session, found.refresh_hash, found.previous_hash) == (LOGIN, b"hash", b"before")


def test_rows_are_deleted_no_earlier_than_they_expire() -> None:
    second = NOW_MS // 1000
    assert user_session_row(LOGIN)["ttl"] == second + 1
    assert session_row(BOT, refresh_hash=None)["ttl"] == second + 1


# The outbox.


CHANGES: list[ChangeEvent] = [
    ChatCreated(a_chat(), (ANNA, BEN)),
    ChatRenamed(a_chat(name="ä"), ANNA, NOW_MS),
    MembershipChanged(
        chat=a_chat(),
        user_id=BEN,
        change=MembershipChange.ADDED,
        role=Role.ADMIN,
        joined_sequence=7,
        changed_by=ANNA,
        changed_at_ms=NOW_MS,
    ),
    ChatClosed(a_chat(), (ANNA, BEN), ANNA, NOW_MS),
]


def test_messages_come_back_by_their_sequences() -> None:
    origins = [None, ConnectionId("conn_1")]
    messages = [a_message(4, 3), a_message(7, 4)]
    row = messages_row(messages, origins, membership_version=3, now_ms=NOW_MS)
    found = outbox_row_of(unpack(pack(row)))
    assert found.content == PersistedMessages(CHAT, (4, 7), 3, (None, ConnectionId("conn_1")))
    assert (found.key.shard, found.created_at_ms) == (shard_of(CHAT), NOW_MS)
    assert found.key == messages_key(CHAT, 4)


@pytest.mark.parametrize("event", CHANGES, ids=lambda event: type(event).__name__)
def test_changes_come_back_whole(event: ChangeEvent) -> None:
    found = outbox_row_of(unpack(pack(change_row(event, now_ms=NOW_MS))))
    assert found.content == event
    assert found.key == change_key(CHAT, 3)


BROKEN: dict[str, dict[str, Value]] = {
    "no time": {"created_at": None},
    "time that is no number": {"created_at": "yesterday"},
    "no chat": {"chat_id": None},
    "no sequences": {"sequences": ()},
    "sequences that are no numbers": {"sequences": ("a", "b")},
    "sequences that are no list": {"sequences": 4},
    "no origins": {"origins": None},
    "fewer origins than messages": {"origins": ("conn_1",)},
    "neither messages nor an event": {"sequences": None},
    "an event of no known kind": {"sequences": None, "event": b"{}", "kind": "Something"},
    "an event that is no JSON": {"sequences": None, "event": b"{", "kind": "ChatCreated"},
    "an event without its fields": {"sequences": None, "event": b"{}", "kind": "ChatCreated"},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_row_that_cannot_be_read_keeps_its_place(change: dict[str, Value]) -> None:
    messages = [a_message(4, 3), a_message(7, 4)]
    row = messages_row(messages, [None, None], membership_version=3, now_ms=NOW_MS) | change
    found = outbox_row_of(unpack(pack(row)))
    assert isinstance(found.content, Unreadable)
    assert (found.key, found.created_at_ms) == (messages_key(CHAT, 4), 0)


def test_leases_and_relays_that_have_run_out_count_as_absent() -> None:
    rows = [
        lease_key(3) | {"owner": "a", "until": 11},
        lease_key(4) | {"owner": "b", "until": 10},
        relay_key("a") | {"until": 11},
        relay_key("b") | {"until": 10},
    ]
    assert lease_table_of(rows, now_ms=10) == LeaseTable(("a",), (Lease(3, "a", 11),))
