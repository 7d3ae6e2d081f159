"""blocking.pyi is what the async client makes of the blocking one."""

from tools.blocking_stub import STUB, stub


def test_stub_of_the_blocking_client_is_as_the_code_is() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "it is out of date; run 'make stubs'"
