"""The envelope and its neighbours on the wire."""

import msgspec

from tidewire.wire.rest_models import (
    Envelope,
    ErrorBody,
    ErrorDetail,
    MembersPagination,
    Page,
    Pagination,
    RevokedCount,
    TokensView,
)


def test_success_is_in_an_envelope() -> None:
    assert msgspec.json.encode(Envelope(RevokedCount(revoked_count=2))) == (
        b'{"data":{"revoked_count":2}}'
    )


def test_list_has_its_pagination() -> None:
    page = Page([RevokedCount(revoked_count=2)], Pagination(has_more=True, next_cursor="c"))
    assert msgspec.json.decode(msgspec.json.encode(page)) == {
        "data": [{"revoked_count": 2}],
        "pagination": {"has_more": True, "next_cursor": "c", "prev_cursor": None},
    }
    assert msgspec.to_builtins(MembersPagination()) == {"has_more": False, "next_cursor": None}


def test_error_has_details_only_if_there_are_some() -> None:
    error = ErrorDetail(code="NOT_FOUND", message="no", request_id="r")
    assert msgspec.to_builtins(ErrorBody(error=error)) == {
        "error": {"code": "NOT_FOUND", "message": "no", "request_id": "r"}
    }


def test_tokens_do_not_show_themselves() -> None:
    tokens = TokensView(access_token="abc", refresh_token="def", expires_in=60)
    assert "abc" not in repr(tokens)
    assert msgspec.to_builtins(tokens)["token_type"] == "Bearer"
