"""A REST client of nothing but the standard library: what a plane in any language would do."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from hal.conformance.answers import NonConformance

LIMIT_S: Final = 60.0


class Answer(NamedTuple):
    """Status and decoded body of an answer."""

    status: int
    body: Any


class Exchange(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    """By name in small letters."""
    body: bytes


class Rest:
    """One controller, as whoever has the token sees it."""

    def __init__(self, url: str, token: str = "") -> None:
        """
        Args:
            url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:///PATH` of the controller's socket.
            token: an API token; none on a socket, where the kernel says who is calling.
        """
        self._url = urlsplit(url)
        self._token = token

    def ask(self, method: str, path: str, body: object = None, *, unless: str = "") -> Answer:
        """Send a request and return its answer, whatever the status.

        Args:
            unless: the version in `If-None-Match`; '': none.
        Raises:
            NonConformance: the answer is no JSON.
        """
        headers = {"Content-Type": "application/json", **self.authorization}
        if unless:
            headers["If-None-Match"] = f'"{unless}"'
        answer = self.exchange(method, path, headers, None if body is None else json.dumps(body).encode())
        try:
            return Answer(answer.status, json.loads(answer.body) if answer.body else None)
        except ValueError as error:
            raise NonConformance(f"{method} {path} was answered with what is no JSON: {answer.body[:200]!r}") from error

    def exchange(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Exchange:
        """Send a request as it is given, and return its answer as it came; the token is not added (`authorization`)."""
        connection = self._connection()
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Exchange(answer.status, names, answer.read())
        finally:
            connection.close()

    @property
    def authorization(self) -> dict[str, str]:
        """The header that shows the token; none where there is none."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    @property
    def needs_token(self) -> bool:
        """Whether callers are known by their token only."""
        return self._url.scheme != "unix"

    def good(self, method: str, path: str, body: object = None) -> Any:
        """The body of an answer that is no refusal.

        Raises:
            NonConformance: it was refused.
        """
        status, answer = self.ask(method, path, body)
        if status >= 300:
            raise NonConformance(f"{method} {path} was refused with {status}: {answer}")
        return answer

    def refused(self, method: str, path: str, body: object, *statuses: int) -> Any:
        """The problem that answers a request which must be refused.

        Raises:
            NonConformance: it was not, or with another status, or without saying why.
        """
        status, answer = self.ask(method, path, body)
        if status not in statuses:
            raise NonConformance(f"{method} {path} was answered with {status}, not {statuses}: {answer}")
        if not isinstance(answer, dict) or not answer.get("detail") or not answer.get("code"):
            raise NonConformance(f"{method} {path} was refused without a problem document: {answer}")
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        if self._url.scheme == "unix":
            return _OverSocket(self._url.path)
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        return kind(self._url.hostname or "localhost", self._url.port, timeout=LIMIT_S)


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(self._path)
