"""Controllers on the network: how their URLs are written."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hal.core.model.errors import SpecError, shown

DEFAULT_PORT: Final = 4250
"""Of `hal up --tcp` and of URLs that name none."""
MAX_ENDPOINTS: Final = 16
SCHEMES: Final = ("http", "https")


class Endpoint(NamedTuple):
    """One controller."""

    host: str
    port: int
    tls: bool = False

    @property
    def name(self) -> str:
        """What goes into the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{SCHEMES[self.tls]}://{self.name}"


def read_endpoints(text: str) -> tuple[Endpoint, ...]:
    """The controllers that URLs name, separated by commas.

    Raises:
        SpecError: one is no URL, there are too many, or some would be spoken to without TLS.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= MAX_ENDPOINTS:
        raise SpecError(f"url: {len(parts)} URLs were given", hint=f"give between 1 and {MAX_ENDPOINTS}")
    endpoints = tuple(dict.fromkeys(_endpoint(part) for part in parts))
    if len({endpoint.tls for endpoint in endpoints}) > 1:
        # Whoever can keep the one with TLS from answering would be sent the token in plain text.
        raise SpecError("url: some URLs have TLS and some do not", hint="write https:// in each")
    return endpoints


def _endpoint(text: str) -> Endpoint:
    try:
        parts = urlsplit(text)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port or parts.scheme not in SCHEMES or not parts.hostname or parts.path not in ("", "/") or "@" in text:
        raise SpecError(
            f"url: '{shown(text)}' is not the URL of a HAL",
            hint="write https://HOST:PORT (several separated by commas) or unix:///PATH",
        )
    return Endpoint(parts.hostname, port, parts.scheme == "https")
