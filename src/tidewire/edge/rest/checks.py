"""Checks of single values, told as faults of the field they came in."""

from collections.abc import Callable
from typing import TypeVar

from tidewire.domain.errors import InvalidOperation, NotAMember, UserNotFound
from tidewire.domain.ids import ChatId, UserId, is_safe_token
from tidewire.edge.rest.faults import invalid_field
from tidewire.wire.rest_cursors import RestCursor, decode_cursor
from tidewire.wire.timestamps import parse_time_ms

Value = TypeVar("Value")


def checked(field: str, check: Callable[[Value], Value], value: Value) -> Value:
    """The value as the domain's check returns it, its refusal told of the field."""
    try:
        return check(value)
    except InvalidOperation as refusal:
        raise invalid_field(field, str(refusal)) from refusal


def chat_id_of(text: str) -> ChatId:
    """A chat id; nobody is a member of what cannot be one."""
    if not is_safe_token(text):
        raise NotAMember
    return ChatId(text)


def user_id_of(text: str) -> UserId:
    if not is_safe_token(text):
        raise UserNotFound("the given id is none")
    return UserId(text)


def cursor_of(text: str, kind: type[RestCursor]) -> RestCursor:
    cursor = decode_cursor(text, kind)
    if cursor is None:
        raise invalid_field("cursor", "this is no cursor of this list")
    return cursor


def instant_of(field: str, text: str) -> int:
    time_ms = parse_time_ms(text)
    if time_ms is None:
        raise invalid_field(field, "a time such as 2031-05-04T11:20:07.412Z is expected")
    return time_ms
