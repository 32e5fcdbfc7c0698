"""The calls of REST /v1 about secrets. No answer has a value."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import quote

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import to_json


class SecretInfo(View, frozen=True, kw_only=True):
    """A secret, without its value."""

    name: str
    user: str = ""
    """Whose jobs may use it; empty: those of the account."""
    account: str = ""
    version: int = 0
    set_ms: int = 0
    set_by: str = ""


class KeyChange(View, frozen=True, kw_only=True):
    """The result of a change of the key."""

    key: str
    sealed: int = 0
    """Secrets that are stored under the new key."""
    left: int = 0
    """Secrets that could not be opened."""


def secrets() -> Call[tuple[SecretInfo, ...]]:
    """GET /v1/secrets"""
    return Call(get("/v1/secrets"), list_reader("secrets", SecretInfo))


def set_secret(name: str, value: bytes, *, account: str = "") -> Call[SecretInfo]:
    """PUT /v1/secrets/{name}, or that of an account: twice is as once."""
    body = to_json({"value": b64encode(value).decode()})
    return Call(Request("PUT", _path(name, account), body=body), reader(SecretInfo))


def remove_secret(name: str, *, account: str = "", user: str = "") -> Call[SecretInfo]:
    """DELETE /v1/secrets/{name}, or that of an account."""
    query = {"user": user} if user else {}
    # Sent again after it was carried out, it finds nothing, and that would look like a failure.
    return Call(Request("DELETE", _path(name, account), query=query, repeatable=False), reader(SecretInfo))


def rotate_key() -> Call[KeyChange]:
    """POST /v1/secret-keys/rotate"""
    return Call(Request("POST", "/v1/secret-keys/rotate", repeatable=False), reader(KeyChange))


def _path(name: str, account: str) -> str:
    own = f"/v1/secrets/{quote(name, safe='')}"
    return f"/v1/accounts/{quote(account, safe='')}/secrets/{quote(name, safe='')}" if account else own
