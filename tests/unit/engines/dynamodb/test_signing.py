"""Signatures are those that the vendor's library makes of the same request."""

import datetime
from typing import Any, NamedTuple

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from tidewire.engines.dynamodb.signing import Signer

NOW_S = 1_800_000_000


class Keys(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None


# What AWS gives out: letters, digits and a few signs.
words = st.text("abcXYZ0129/+=", min_size=1, max_size=60)
keys = st.builds(Keys, words, words, st.none() | words)
hosts = st.sampled_from(
    ["dynamodb.eu-central-1.amazonaws.com", "127.0.0.1:8000", "[::1]:8000", "localhost"]
)


def headers_of(head: bytes) -> dict[str, str]:
    first, *lines = head.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first == "POST / HTTP/1.1"
    headers = dict(line.split(":", 1) for line in lines)
    assert len(headers) == len(lines)
    return headers


def signed_by_vendor(
    host: str, region: str, target: str, body: bytes, by: Keys, now_s: int
) -> dict[str, Any]:
    request = AWSRequest(
        "POST",
        f"https://{host}/",
        headers={"content-type": "application/x-amz-json-1.0", "x-amz-target": target},
        data=body,
    )
    then = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", lambda *_, **__: then.replace(tzinfo=None))
        auth.SigV4Auth(Credentials(*by), "dynamodb", region).add_auth(request)
    return dict(request.headers)


@given(
    host=hosts,
    region=st.sampled_from(["local", "us-east-1", "ap-southeast-4"]),
    target=st.sampled_from(["GetItem", "TransactWriteItems"]),
    body=st.binary(max_size=300),
    by=keys,
    now_s=st.integers(0, 4_000_000_000),
)
def test_signature_is_the_vendors(
    host: str, region: str, target: str, body: bytes, by: Keys, now_s: int
) -> None:
    signer = Signer(host=host, region=region, user_agent="tidewire/1")
    ours = headers_of(signer.head(f"DynamoDB_20120810.{target}", body, by, now_s=now_s))
    theirs = signed_by_vendor(host, region, f"DynamoDB_20120810.{target}", body, by, now_s)
    assert ours["authorization"] == theirs["Authorization"]
    assert ours["x-amz-date"] == theirs["X-Amz-Date"]
    assert ours.get("x-amz-security-token") == theirs.get("X-Amz-Security-Token")
    assert ours["host"] == host
    assert ours["content-length"] == str(len(body))


@given(
    requests=st.lists(
        st.tuples(keys, st.sampled_from([NOW_S, NOW_S + 1, NOW_S + 86_400, NOW_S - 86_400])),
        max_size=8,
    )
)
def test_what_is_remembered_is_never_that_of_other_keys_or_of_another_day(
    requests: list[tuple[Keys, int]],
) -> None:
    def signer() -> Signer:
        return Signer(host="localhost", region="local", user_agent="tidewire/1")

    lasting = signer()
    for by, now_s in requests:
        assert lasting.head("t", b"{}", by, now_s=now_s) == signer().head(
            "t", b"{}", by, now_s=now_s
        )
