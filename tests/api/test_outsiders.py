"""Nobody in where they do not belong: every endpoint of a chat, asked by those who are outside.

A chat that exists, one that was left and one that never was must look the same to them, to the
letter, but for the id of the request.
"""

from typing import Any

from tests.api.stage import API, Stage, code_of

KEY = "0d9f6c52-3b77-4d0f-8f0a-6a1c8e25b9d3"
NOWHERE = "chat_01ARZ3NDEKTSV4RRFFQ69G5FAV"
OPEN = ("/auth/register", "/auth/login", "/auth/refresh")

MESSAGE = {"client_message_id": KEY, "content": "hello"}
ENDPOINTS: list[tuple[str, str, Any]] = [
    ("GET", "/chats/{chat}", None),
    ("PATCH", "/chats/{chat}", {"name": "Mine"}),
    ("PATCH", "/chats/{chat}", {"name": " bad"}),
    ("POST", "/chats/{chat}/mute", {"duration_hours": 1}),
    ("POST", "/chats/{chat}/unmute", None),
    ("POST", "/chats/{chat}/hide", None),
    ("POST", "/chats/{chat}/unhide", None),
    ("POST", "/chats/{chat}/members", {"user_id": "{carl}"}),
    ("POST", "/chats/{chat}/members", {"user_id": "user_nobody"}),
    ("DELETE", "/chats/{chat}/members/{anna}", None),
    ("DELETE", "/chats/{chat}/members/{carl}", None),
    ("DELETE", "/chats/{chat}/members/%20", None),
    ("PATCH", "/chats/{chat}/members/{anna}", {"role": "admin"}),
    ("PATCH", "/chats/{chat}/members/%20", {"role": "admin"}),
    ("POST", "/chats/{chat}/transfer", {"user_id": "{carl}"}),
    ("POST", "/chats/{chat}/transfer", {"user_id": "user_nobody"}),
    ("POST", "/chats/{chat}/close", None),
    ("POST", "/chats/{chat}/leave", None),
    ("GET", "/chats/{chat}/messages", None),
    ("GET", "/chats/{chat}/messages?after_sequence=99", None),
    ("GET", "/chats/{chat}/messages?cursor=nonsense", None),
    ("GET", "/chats/{chat}/messages/around/1", None),
    ("GET", "/chats/{chat}/messages/around/99", None),
    ("GET", "/chats/{chat}/messages/{message}", None),
    ("GET", "/chats/{chat}/messages/msg_nothing", None),
    ("GET", "/chats/{chat}/messages/1", None),
    ("POST", "/chats/{chat}/messages", MESSAGE),
    ("POST", "/chats/{chat}/messages", {**MESSAGE, "reply_to": 1, "mentions": ["user_1"]}),
    ("POST", "/chats/{chat}/messages/1/edits", MESSAGE),
    ("POST", "/chats/{chat}/messages/{message}/edits", MESSAGE),
    ("POST", "/chats/{chat}/messages/msg_nothing/edits", MESSAGE),
    ("POST", "/chats/{chat}/messages/1/deletion", {"client_message_id": KEY}),
    ("POST", "/chats/{chat}/messages/99/deletion", {"client_message_id": KEY}),
    ("POST", "/chats/{chat}/messages/1/reactions", {"client_message_id": KEY, "emoji": "👍"}),
    (
        "POST",
        "/chats/{chat}/messages/{message}/reactions",
        {"client_message_id": KEY, "emoji": "x"},
    ),
    ("GET", "/delivery-state?chat_ids={chat}", None),
    ("PATCH", "/chats/{chat}/delivery-state", {"last_acked_sequence": 1}),
    ("PATCH", "/chats/{chat}/delivery-state", {"last_read_sequence": 99}),
    ("PATCH", "/delivery-state/{chat}", {"last_acked_sequence": 1}),
    ("GET", "/chats/{chat}/delivery-status", None),
    ("GET", "/chats/{chat}/delivery-status?for_sequence=99", None),
]


ALIKE = [("DELETE", "/users/me/refused-groups/{}")]
"""Answers members, outsiders and those who ask for no chat alike: with success."""


async def test_refusal_is_taken_back_alike_by_all(stage: Stage) -> None:
    anna, berta, carl = await stage.people("anna", "berta", "carl")
    chat_id = await stage.group(anna, berta)
    for method, path in ALIKE:
        answers = [
            await person.call(method, path.replace("{}", chat))
            for person, chat in ((berta, chat_id), (carl, chat_id), (carl, NOWHERE))
        ]
        assert {(one.status_code, one.content) for one in answers} == {(204, b"")}


async def test_every_endpoint_of_a_chat_is_listed(stage: Stage) -> None:
    described = await _paths(stage)
    listed = {
        (method, path.partition("?")[0].replace("{chat}", "{}")) for method, path, _ in ENDPOINTS
    }
    for method, path in described:
        if "{chat_id}" not in path:
            continue
        form = path.removeprefix(API).replace("{chat_id}", "{}")
        if (method, form) in ALIKE:
            continue
        known = [(m, p) for m, p in listed if m == method and _matches(form, p)]
        assert known, f"{method} {path} is not asked by an outsider here"


async def test_outsiders_learn_nothing(stage: Stage) -> None:
    anna, berta, carl, dora = await stage.people("anna", "berta", "carl", "dora")
    chat_id = await stage.group(anna, berta, carl)
    sent = await anna.send(chat_id, "secret")
    await carl.post(f"/chats/{chat_id}/leave")
    named = {"anna": anna.user_id, "carl": carl.user_id, "message": sent["message_id"]}
    outside = ((dora, chat_id), (carl, chat_id), (dora, NOWHERE), (dora, "%F0%9F"))
    for method, path, body in ENDPOINTS:
        stage.clock.pass_ms(1000)
        filled = {
            key: value.format(**named) if isinstance(value, str) else value
            for key, value in (body or {}).items()
        }
        errors = []
        for outsider, chat in outside:
            asked = path.format(chat=chat, **named)
            answer = await outsider.call(method, asked, json=filled if body else None)
            assert (answer.status_code, code_of(answer)) == (403, "NOT_A_MEMBER"), asked
            errors.append({**answer.json()["error"], "request_id": None})
        assert all(error == errors[0] for error in errors), (method, path)
    (message,) = (await anna.get(f"/chats/{chat_id}/messages")).json()["data"]
    assert message["content"] == "secret"


async def test_without_a_token_nothing_is_open(stage: Stage) -> None:
    paths = await _paths(stage)
    open_paths = {API, *(f"{API}{path}" for path in ("/health", *OPEN))}
    for token in (None, "Basic YTpi", "Bearer", "Bearer nonsense", "Bearer a.b.c"):
        headers = {} if token is None else {"Authorization": token}
        for method, path in paths:
            if path in open_paths:
                continue
            address = path.format(
                chat_id=NOWHERE, user_id="user_x", message_id="msg_x", session_id="s", sequence=1
            )
            answer = await stage.client.request(method, address, headers=headers)
            assert (answer.status_code, code_of(answer)) == (401, "UNAUTHORIZED"), (method, path)
            assert answer.json()["error"]["details"]["reason"] == (
                "missing_token" if token is None else "invalid_token"
            )


async def _paths(stage: Stage) -> list[tuple[str, str]]:
    document = await stage.described()
    return [(method.upper(), path) for path, item in document["paths"].items() for method in item]


def _matches(form: str, asked: str) -> bool:
    parts, given = form.split("/"), asked.split("/")
    return len(parts) == len(given) and all(
        part == each or (part.startswith("{") and part != "{}" and each != "around")
        for part, each in zip(parts, given, strict=True)
    )
