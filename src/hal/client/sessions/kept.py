"""Durable sessions of which nothing runs: a directory with the session's file and its journal."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hal.core.model.errors import HALError, NotFoundError, UnreachableError
from hal.runtime.exchange import exchange_path, remove_exchange
from hal.runtime.session_file import SessionFile, durable_directory, read_session_file, shards_of

if TYPE_CHECKING:
    from hal.client.rest.views import Outcome
    from hal.client.sync_client import Client

FILE: Final = "session.json"
END_S: Final = 10.0
"""How long a broker may take to end its session, before its job is cancelled."""


def kept_session(directory: Path) -> SessionFile | None:
    """The session whose directory this is; None: it has no file."""
    try:
        return read_session_file(directory / FILE)
    except NotFoundError:
        return None


def forget(directory: Path) -> bool:
    """Remove all that is left of a session; returns whether there was something."""
    session = kept_session(directory)
    if session is not None:
        for shard in shards_of(session):
            remove_exchange(exchange_path(shard.id, directory))
    shutil.rmtree(directory, ignore_errors=True)
    return session is not None


def end_session(client: Client, name: str) -> list[Outcome]:
    """End a session of this user, and forget it if it is durable.

    Raises:
        NotFoundError: there is none of that name.
    """
    from hal.client.sessions.listing import file_of, my_session

    directory = durable_directory(client.address.named, name)
    try:
        found = my_session(client, name)
    except NotFoundError:
        if not forget(directory):
            raise
        return []
    with contextlib.suppress(HALError):
        _tell_end(file_of(client, found))
    spec = (client.job(found.broker).refresh().spec if found.broker else None) or {}
    outcomes = client.cancel(*[job for job in (found.broker, *(one.job for one in found.shapes)) if job])
    forget(directory)
    if spec.get("secrets"):
        from hal.client.sessions.machines import Spread, secret_of

        Spread(client, secret_of(spec)).remove()
    return outcomes


def _tell_end(session: SessionFile) -> None:
    """Tell the broker that the session is over, and wait until it has cleared up.

    Raises:
        HALError: it does not answer.
    """
    from hal.client.sessions.broker_connection import connect
    from hal.wire.frames.sessions import EndSession

    if not session.journal:
        return
    links = []
    try:
        for shard in shards_of(session):
            with contextlib.suppress(UnreachableError):
                link, _ = connect(shard)
                links.append(link)
                link.send(EndSession())
        for link in links:
            while link.ready(END_S) and link.receive():
                pass
    finally:
        for link in links:
            link.close()
