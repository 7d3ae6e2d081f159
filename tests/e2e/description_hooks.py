"""How schemathesis calls our server: who it is, and whom it knows. Holds no test.

Loaded by schemathesis, in a process of its own, through `SCHEMATHESIS_HOOKS`.
"""

import os
import uuid
from typing import Any, Final

import requests
import schemathesis

URL: Final = "TIDEWIRE_TEST_URL"
PASSWORD: Final = "TIDEWIRE_TEST_PASSWORD"
TOKEN: Final = "TIDEWIRE_TEST_TOKEN"
PASSER_BY: Final = "TIDEWIRE_TEST_PASSER_BY"
FRIEND: Final = "TIDEWIRE_TEST_FRIEND"

Call = schemathesis.Case[Any]

_ENDS_SESSIONS: Final = "^/api/v1/(sessions|auth/logout)"


class _Bearer:
    def set(self, case: Call, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.auth(refresh_interval=None).skip_for(path_regex=_ENDS_SESSIONS)
class Resident(_Bearer):
    """The same login from the first call to the last."""

    def get(self, case: Call, context: schemathesis.AuthContext) -> str:
        return os.environ[TOKEN]


@schemathesis.auth(refresh_interval=None).apply_to(path_regex=_ENDS_SESSIONS)
class PasserBy(_Bearer):
    """Somebody else, with a new login for each call: these calls end sessions, also their own."""

    def get(self, case: Call, context: schemathesis.AuthContext) -> str:
        answer = requests.post(
            f"{os.environ[URL]}/api/v1/auth/login",
            json={
                "username": os.environ[PASSER_BY],
                "password": os.environ[PASSWORD],
                "device_id": str(uuid.uuid4()),
            },
            timeout=10,
        )
        answer.raise_for_status()
        token: str = answer.json()["data"]["tokens"]["access_token"]
        return token


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Call, **_: Any) -> None:
    """Names somebody who exists, or no chat would ever be made."""
    if isinstance(case.body, dict):
        body: dict[str, Any] = dict(case.body)
        if isinstance(body.get("user_id"), str):
            body["user_id"] = os.environ[FRIEND]
        if isinstance(body.get("member_ids"), list) and len(body["member_ids"]) == 1:
            body["member_ids"] = [os.environ[FRIEND]]
        case.body = _with_whole_numbers(body)


def _with_whole_numbers(value: Any) -> Any:
    """JSON Schema takes 5.0 for an integer, and so cannot say that we do not."""
    match value:
        case dict():
            return {name: _with_whole_numbers(item) for name, item in value.items()}
        case list():
            return [_with_whole_numbers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
