"""Several people at one controller: each comes in over the real application with a token of their own, as over TCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.daemons.controller.running import LIMIT_S, Running

MAX_ASKED = 5_000
PEER = ("192.0.2.7", 4711)
"""Where they seem to come from."""


async def make_token(hal: Running, user: str, **fields: Any) -> dict[str, Any]:
    """What the owner is told of a new token."""
    answer = await hal.http.post("/v1/api-tokens", json={"user": user, **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def with_secret(hal: Running, secret: str) -> httpx.AsyncClient:
    """Somebody who shows that token."""
    transport = httpx.ASGITransport(app=hal.rest.app, client=PEER)
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return httpx.AsyncClient(transport=transport, base_url="http://hal", headers=headers, timeout=LIMIT_S)


@asynccontextmanager
async def person(hal: Running, user: str, **fields: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A user with a fresh token."""
    made = await make_token(hal, user, **fields)
    async with with_secret(hal, made["secret"]) as http:
        yield http


async def until_too_many(http: httpx.AsyncClient) -> list[int]:
    """Statuses of requests up to the first that is too many; a slow machine gets there later, as buckets fill up."""
    statuses: list[int] = []
    while 429 not in statuses:
        assert len(statuses) < MAX_ASKED
        statuses.append((await http.get("/v1/version")).status_code)
    return statuses
