"""Fetches the public keys of an identity provider (JWKS) over HTTP."""

import asyncio
import http.client
import urllib.error
import urllib.request
from typing import Final

TIMEOUT_S: Final = 5.0
BYTES_MAX: Final = 256 * 1024


class JwksSource:
    """`accounts.options.FetchKeys`: returns the document, or raises OSError, in a bounded time."""

    def __init__(self, url: str) -> None:
        """The URL begins with http:// or https://."""
        self._url = url

    async def __call__(self) -> bytes:
        async with asyncio.timeout(2 * TIMEOUT_S):
            return await asyncio.to_thread(self._get)

    def _get(self) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - checked when the settings were read
            self._url, headers={"accept": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                document: bytes = response.read(BYTES_MAX + 1)
        except http.client.HTTPException as error:
            raise OSError(f"{self._url} does not answer as HTTP does: {error!r}") from error
        if len(document) > BYTES_MAX:
            raise OSError(f"{self._url} is larger than {BYTES_MAX} bytes")
        return document
