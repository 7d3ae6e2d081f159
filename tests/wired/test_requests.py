"""A request that fails for a reason that no code expects fails alone (A5).

Every kind of request is served by a store that raises, over real sockets. Its caller is told, one
line stands in the log, the counter of its kind rises, two other people go on talking, and no
service dies. A service whose failure no caller could be told of still ends the process.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.exceptions import InvalidStatus

from tests.e2e.chatting import Phone
from tests.wired.site import Surprise, WiredSite, wired
from tidewire.domain.errors import StoreUnusable
from tidewire.ports.runtime import RequestKind
from tidewire.ports.transport import SocketTransport
from tidewire.runtime import control

pytestmark = pytest.mark.slow


class Talk:
    """A server on which two people talk, whatever happens to a third."""

    def __init__(self, site: WiredSite, ann: Phone, ben: Phone, chat_id: str) -> None:
        self.site = site
        self.ann = ann
        self.ben = ben
        self.chat_id = chat_id

    async def goes_on(self) -> None:
        """One more message reaches the other, and no service has died."""
        sent = await self.ann.say(self.chat_id, "still here")
        await self.ben.get("message", sequence=sent["sequence"])
        assert self.site.deaths == []


@asynccontextmanager
async def talking(data_dir: Path) -> AsyncIterator[Talk]:
    async with wired(data_dir) as site:
        ann, ben = await site.people("ann", "ben")
        chat_id = await site.direct(ann, ben)
        async with site.phone(ann) as first, site.phone(ben) as second:
            talk = Talk(site, first, second, chat_id)
            await talk.goes_on()
            yield talk


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    async with talking(tmp_path) as talk:
        yield talk


def failures_logged(caplog: pytest.LogCaptureFixture, kind: RequestKind) -> list[str]:
    """The tracebacks of this kind in the log."""
    records = [
        one
        for one in caplog.records
        if one.message == "request failed unexpectedly" and one.__dict__["kind"] == kind
    ]
    assert all(one.levelno == logging.ERROR and one.exc_info for one in records)
    return [repr(one.exc_info[1]) for one in records if one.exc_info]


async def test_page_that_cannot_be_read_is_an_internal_error(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    talk.site.break_store("messages_after")
    wish = {"chat_id": talk.chat_id, "last_acked_sequence": 0, "limit": 10}
    answer = await talk.ben.ask("sync_request", wish)
    assert answer["payload"]["code"] == "INTERNAL_ERROR"
    assert talk.site.failures == {"sync": 1}
    assert failures_logged(caplog, RequestKind.SYNC) == [repr(Surprise("a byte was flipped"))]
    await talk.goes_on()
    talk.site.mend_store("messages_after")
    assert len(await talk.ben.sync(talk.chat_id)) == 2
    assert await talk.site.metric("request_failures_total") == 1


async def test_digest_that_cannot_be_read_is_an_internal_error(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    talk.site.break_store("digest")
    answer = await talk.ben.ask("digest_request", {})
    assert answer["payload"]["code"] == "INTERNAL_ERROR"
    assert talk.site.failures == {"digest": 1}
    assert len(failures_logged(caplog, RequestKind.DIGEST)) == 1
    await talk.goes_on()


async def test_first_digest_that_cannot_be_read_closes_with_1011(talk: Talk) -> None:
    carl = await talk.site.person("carl")
    talk.site.break_store("digest")
    with pytest.raises(Exception, match="1011"):
        async with talk.site.phone(carl):
            pytest.fail("it was established")
    assert talk.site.failures == {"digest": 1}
    await talk.goes_on()
    talk.site.mend_store("digest")
    async with talk.site.phone(carl) as phone:
        await phone.caught_up()


async def test_upgrade_that_cannot_be_decided_is_refused(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    carl = await talk.site.person("carl")
    talk.site.server.planes.accounts.authenticator.forget()
    talk.site.break_store("session")
    with pytest.raises(InvalidStatus, match="503"):
        async with talk.site.phone(carl):
            pytest.fail("it was admitted")
    assert talk.site.failures == {"upgrade": 1}
    assert len(failures_logged(caplog, RequestKind.UPGRADE)) == 1
    await talk.goes_on()


async def test_rest_request_that_fails_is_an_internal_error(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    carl = await talk.site.person("carl")
    talk.site.break_store("chat_list")
    answer = await talk.site.call("GET", "/api/v1/chats", by=carl)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "INTERNAL_ERROR"
    assert talk.site.failures == {"rest": 1}
    assert len(failures_logged(caplog, RequestKind.REST)) == 1
    await talk.goes_on()


@pytest.mark.parametrize("bug", [Surprise, KeyError, ValueError])
async def test_command_that_fails_is_told_so(talk: Talk, bug: type[Exception]) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise bug("a byte was flipped")

    talk.site.server.planes.store.list_users = broken  # type: ignore[assignment,method-assign]
    data_dir = talk.site.server.config.data_dir
    with pytest.raises(control.OperationFailed, match=r"^INTERNAL_ERROR: .* log"):
        await asyncio.to_thread(control.ask, data_dir, "users.list", {"after": None})
    assert talk.site.failures == {"control": 1}
    await talk.goes_on()


async def test_message_that_cannot_be_appended_may_be_sent_again(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    key = "00000000-0000-4000-8000-00000000000a"
    message = {"chat_id": talk.chat_id, "content": "again", "client_message_id": key}
    talk.site.break_store("append_nowait")
    answer = await talk.ben.ask("send_message", message)
    assert answer["payload"]["code"] == "SERVICE_UNAVAILABLE"
    assert talk.site.failures == {"send": 1}
    assert len(failures_logged(caplog, RequestKind.SEND)) == 1
    talk.site.mend_store("append_nowait")
    assert (await talk.ben.say(talk.chat_id, "again", key))["client_message_id"] == key
    await talk.ann.get("message", content="again")
    await talk.goes_on()


async def test_acknowledgement_that_cannot_be_written_is_dropped(talk: Talk) -> None:
    talk.site.break_store("advance")
    await talk.ben.ack(talk.chat_id, 1)
    await talk.site.failed("acknowledgement")
    await talk.goes_on()
    talk.site.mend_store("advance")
    await talk.ben.ack(talk.chat_id, 2)
    await talk.ann.numbers(talk.chat_id, others_delivered=2)
    assert talk.site.deaths == []


async def test_ticks_that_cannot_be_read_are_told_with_the_next_move(talk: Talk) -> None:
    talk.site.break_store("floors")
    await talk.ben.ack(talk.chat_id, 1)
    await talk.site.failed("status")
    await talk.goes_on()
    talk.site.mend_store("floors")
    await talk.ben.ack(talk.chat_id, 2)
    await talk.ann.numbers(talk.chat_id, others_delivered=2)
    assert talk.site.deaths == []


async def test_members_that_cannot_be_read_make_people_sync_again(talk: Talk) -> None:
    talk.site.server.planes.fanout.rosters_changed()
    talk.site.break_store("roster")
    await talk.ann.say(talk.chat_id, "for whom?")
    await talk.ben.get("resync", reason="store_unavailable")
    assert talk.site.failures == {"push": 1}
    talk.site.mend_store("roster")
    await talk.goes_on()


async def test_event_that_cannot_be_pushed_makes_people_sync_again(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise Surprise("a byte was flipped")

    with monkeypatch.context() as patch:
        patch.setattr("tidewire.fanout.worker.push_of", broken)
        async with talk.site.phone(await talk.site.person("carl")) as stranger:
            await talk.ann.say(talk.chat_id, "for whom?")
            await talk.ben.get("resync", reason="pushes_lost")
            await stranger.caught_up()
            assert stranger.find("resync") is None
    assert talk.site.failures == {"push": 1}
    await talk.goes_on()


async def test_connection_whose_core_fails_closes_with_1011_and_no_other(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise Surprise("a byte was flipped")

    carl = await talk.site.person("carl")
    async with talk.site.phone(carl) as phone:
        with monkeypatch.context() as patch:
            patch.setattr("tidewire.gateway.frames.heartbeat_ack_frame", broken)
            await phone.post("heartbeat", {}, "r1")
            assert await phone.closed() == 1011
        assert phone.find("error", code="INTERNAL_ERROR") is not None
    assert talk.site.failures == {"connection": 1}
    await talk.goes_on()


class Unwritable:
    """A connection's transport, of which only writing fails."""

    def __init__(self, transport: SocketTransport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, _: bytes) -> None:
        raise Surprise("a byte was flipped")


async def test_socket_that_cannot_be_written_to_keeps_no_other_from_its_frames(talk: Talk) -> None:
    """The flush of a turn goes through all connections that have something to write."""
    carl = await talk.site.login(await talk.site.person("carl"))
    hub = talk.site.server.planes.hub
    async with talk.site.phone(carl) as phone:
        [driver] = hub._by_user[carl.user_id]  # type: ignore[index]

        driver._transport = cast("Any", Unwritable(driver._transport))
        await phone.post("heartbeat", {}, "r1")
        assert await phone.closed() == 1011
    assert talk.site.failures["connection"] >= 1
    await talk.goes_on()
    assert hub.connections_count == 2


async def test_round_of_housekeeping_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.runtime.lifecycle.HOUSE_S", 0.01)
    async with wired(tmp_path) as site:
        site.break_store("sweep_accounts")
        await site.failed("housekeeping", 2)
        assert site.deaths == []


async def test_socket_of_commands_survives_a_client_that_hangs_up(talk: Talk) -> None:
    data_dir = talk.site.server.config.data_dir
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(data_dir / control.SOCKET_NAME))
        client.sendall(b'{"command": "users.list", "arguments": {"after": null}}\n')
    await talk.goes_on()
    assert talk.site.failures == {}


async def test_store_in_doubt_still_ends_the_process(talk: Talk) -> None:
    def in_doubt(*_: object, **__: object) -> None:
        raise StoreUnusable("a commit failed and its outcome is unknown")

    talk.site.server.planes.store.append_nowait = in_doubt  # type: ignore[method-assign]
    message = {
        "chat_id": talk.chat_id,
        "content": "x",
        "client_message_id": "0" * 8 + "-0000-4000-8000-000000000001",
    }
    answer = await talk.ann.ask("send_message", message)
    assert answer["payload"]["code"] == "SERVICE_UNAVAILABLE"
    assert await talk.site.died() == "ingest"


async def test_service_that_fails_still_ends_the_process(talk: Talk) -> None:
    async def work() -> None:
        raise Surprise("a byte was flipped")

    talk.site.server.tasks.start_service("publisher", work())
    assert await talk.site.died() == "publisher"
    assert talk.site.failures == {}
