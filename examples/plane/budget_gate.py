"""The gate `budget`: a job that names it begins only while its user has some of the budget left. See docs/gates.md."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ledger import Ledger

NAME = "budget"
MAX_REQUEST_BYTES = 1 << 16
READ_S = 10.0
"""An agent that has not sent its line by then is gone."""


@contextlib.asynccontextmanager
async def serving(home: Path, ledger: Ledger) -> AsyncIterator[None]:
    """Answer at HAL_HOME/gates/budget.sock."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):  # the agent went away, or sent too much
            line = await asyncio.wait_for(reader.readline(), READ_S)
            writer.write(json.dumps(answer_to(ledger, line)).encode() + b"\n")
            await writer.drain()
        writer.close()

    directory = home / "gates"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{NAME}.sock"
    server = await asyncio.start_unix_server(answer, sock=_bound(path), limit=MAX_REQUEST_BYTES)
    async with server:
        yield
    path.unlink(missing_ok=True)


def answer_to(ledger: Ledger, line: bytes) -> dict[str, Any]:
    """The answer to one request."""
    try:
        request = json.loads(line)
        known = request["version"] == 1 and request["ask"] in ("enter", "cancel")
        attempt, rank = f"{request['job']}.{request['task']}.{request['attempt']}", int(request["rank"])
        user, argument = str(request["user"]), request["argument"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"state": "refused", "reason": "not a request of version 1"}
    if not known:
        return {"state": "refused", "reason": "not a request of version 1"}
    if argument:
        return {"state": "refused", "reason": "this gate takes no argument"}
    if request["ask"] == "cancel":
        ledger.forget(attempt, rank)
        return {"state": "ready"}
    if ledger.admit(user, attempt, rank):
        return {"state": "ready"}
    return {"state": "refused", "reason": "the budget is spent"}


def _bound(path: Path) -> socket.socket:
    """A socket's path may have 107 bytes; through its directory it has fewer."""
    path.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(f"/proc/self/fd/{directory}/{path.name}")
        return bound
    finally:
        os.close(directory)
