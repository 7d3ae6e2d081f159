"""From what somebody calls a chat to the chat."""

from tidewire.client import Chat, Client, ServerUnreachable
from tidewire.domain.chats import ChatType
from tidewire.terminal.addresses import (
    ById,
    ByName,
    Known,
    WithUser,
    choose,
    may_be_username,
    parse_address,
)


async def find_chat(client: Client, text: str) -> Chat:
    """The chat that is meant; a direct chat is made if there is none. Raises ClientError and
    InvalidOperation."""
    address = parse_address(text)
    if isinstance(address, ByName):
        address = await _choose(client, address.name)
    if isinstance(address, WithUser):
        return await client.direct(address.username)
    assert isinstance(address, ById)
    return client.chat(address.chat_id)


async def _choose(client: Client, name: str) -> ById | WithUser:
    try:
        chats = await client.chats()
    except ServerUnreachable:
        # What this device knows has to do.
        chats = client.known_chats()
    groups = [
        Known(chat.chat_id, chat.name)
        for chat in chats
        if chat.type is ChatType.GROUP and chat.name is not None
    ]
    is_user = may_be_username(name)
    if is_user and any(group.name.casefold() == name.casefold() for group in groups):
        # Only then does it matter whether there is such a user: a server lets nobody look up many
        # names. Otherwise it is a user, or `direct` says that there is none.
        is_user = bool(await client.users(name))
    return choose(name, groups, is_user=is_user)
