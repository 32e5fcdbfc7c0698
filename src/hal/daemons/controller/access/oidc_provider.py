"""The keys of an OpenID Connect provider: fetched when needed, beside everything else, within bounds.

A provider that is slow, gone or hostile delays only those who log in: answers are bounded in bytes and time, one fetch
runs at a time, and there is at most one in `AGAIN_MS`, however many tokens name keys that do not exist.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hal.core.model import HALError, OverloadedError, UnreachableError, shown
from hal.daemons.controller.access.oidc_settings import OidcSection, is_safe_url
from hal.daemons.controller.access.oidc_tokens import Key, Person, UnknownKeyError, read_keys, verify
from hal.rest.identity import UnauthorizedError
from hal.runtime.interface import Lane, Runtime

if TYPE_CHECKING:
    import httpx

DISCOVERY: Final = "/.well-known/openid-configuration"
FRESH_MS: Final = 3_600_000
"""Keys are fetched again after this time."""
RELY_MS: Final = 24 * 3_600_000
"""How long keys are relied on while the provider does not answer."""
AGAIN_MS: Final = 30_000
"""Least time between two fetches."""
FETCH_TIMEOUT_S: Final = 10.0
"""For both answers together."""
MAX_ANSWER_BYTES: Final = 256 << 10
MAX_WAITING: Final = 64
"""Logins that wait for a fetch."""


class OidcProvider:
    """The one provider of a HAL."""

    def __init__(self, runtime: Runtime, settings: OidcSection) -> None:
        self._runtime = runtime
        self._settings = settings
        self._keys: list[Key] = []
        self._fetched_ms: int | None = None
        """When the keys were fetched; by the monotonic clock, as all here."""
        self._tried_ms: int | None = None
        self._failure = ""
        """Why the newest fetch failed."""
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0

    async def person(self, token: str) -> Person:
        """Who a token of the provider is about.

        Raises:
            UnauthorizedError: it is not believed; says why.
            UnreachableError: the provider's keys cannot be fetched at present.
            OverloadedError: too many log in.
        """
        if self._age_ms() >= FRESH_MS:
            await self._refresh()
        if self._age_ms() >= RELY_MS:
            raise UnreachableError(
                f"the keys of {self._settings.issuer} cannot be fetched: {self._failure or 'not yet'}",
                hint="log in again in a minute; or use a token: hal login --token URL",
            )
        try:
            return self._verified(token)
        except UnknownKeyError:
            if not self._may_fetch():
                raise
        await self._refresh()
        return self._verified(token)

    def _verified(self, token: str) -> Person:
        return verify(token, self._keys, self._settings, self._runtime.now_ms())

    def _age_ms(self) -> int:
        return RELY_MS if self._fetched_ms is None else self._runtime.monotonic_ms() - self._fetched_ms

    def _may_fetch(self) -> bool:
        return self._tried_ms is None or self._runtime.monotonic_ms() >= self._tried_ms + AGAIN_MS

    async def _refresh(self) -> None:
        """Have the keys fetched, unless that was tried a moment ago; wait for a fetch that is under way."""
        if self._fetching is None:
            if not self._may_fetch():
                return
            self._tried_ms = self._runtime.monotonic_ms()
            self._fetching = self._runtime.spawn_task(self._fetch(), "fetch-oidc-keys")
        if self._waiting >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} logins wait for the provider", hint="try again in a few seconds")
        self._waiting += 1
        try:
            await asyncio.shield(self._fetching)
        finally:
            self._waiting -= 1

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                keys = await self._fetched_keys()
        except TimeoutError:
            self._fail(f"it did not answer within {FETCH_TIMEOUT_S:.0f} s")
        except HALError as error:
            self._fail(error.message)
        except (OSError, ValueError, ImportError) as error:
            self._fail(shown(str(error)) or type(error).__name__)
        else:
            self._keys, self._fetched_ms, self._failure = keys, self._runtime.monotonic_ms(), ""
        finally:
            self._fetching = None

    def _fail(self, why: str) -> None:
        self._failure = why
        self._runtime.log.warning("the keys of the OIDC provider cannot be fetched", reason=why)

    async def _fetched_keys(self) -> list[Key]:
        import httpx

        context = await self._runtime.run_blocking(partial(_context, self._settings.ca_file), Lane.DECODE)
        client = httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=FETCH_TIMEOUT_S)
        async with client:
            found = await _document(client, self._settings.issuer.rstrip("/") + DISCOVERY)
            if found.get("issuer") != self._settings.issuer:
                raise UnauthorizedError(f"it says that it is '{shown(found.get('issuer'))}'")
            where = found.get("jwks_uri")
            if not isinstance(where, str) or not is_safe_url(where):
                raise UnauthorizedError("its discovery document names no safe URL of its keys")
            document = await _document(client, where)
        keys = await self._runtime.run_blocking(partial(read_keys, document), Lane.DECODE)
        if not keys:
            raise UnauthorizedError("it has no key that can be used")
        return keys


def _context(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or None)


async def _document(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """A JSON object from the provider.

    Raises:
        UnreachableError: it does not answer.
        UnauthorizedError: the answer is no such thing, or too long.
    """
    import httpx

    body = bytearray()
    try:
        # What is unpacked has no bound.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with client.stream("GET", url, headers=headers) as answer:
            if answer.status_code != 200:
                raise UnreachableError(f"{url} answers with status {answer.status_code}")
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise UnauthorizedError(f"the answer of {url} is longer than {MAX_ANSWER_BYTES} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(f"{url} does not answer: {shown(str(error)) or type(error).__name__}") from None
    try:
        found = msgspec.json.decode(bytes(body))
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnauthorizedError(f"the answer of {url} is not a JSON object")
    return found
