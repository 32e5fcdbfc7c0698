"""What anybody who has a session's file may ask its broker, over a connection of its own."""

from __future__ import annotations

import contextlib
from typing import TypeVar

from hal.client.sessions.broker_connection import connect
from hal.core.model.errors import UnreachableError
from hal.runtime.session_file import SessionFile, shards_of
from hal.wire.frames.sessions import (
    MAX_FAILURES,
    AskFailures,
    AskNumbers,
    SessionFailures,
    SessionFrame,
    SessionNumbers,
)

A = TypeVar("A", bound=SessionFrame)


def ask_numbers(session: SessionFile, *, slots: bool = False) -> SessionNumbers:
    """How the session goes.

    Args:
        slots: of each slot, function and tag, and over time, too.
    Raises:
        UnreachableError: its broker does not answer.
        HALError: it refuses.
    """
    if not session.shards:
        return _ask(session, AskNumbers(slots=slots), SessionNumbers)
    from hal.client.sessions.sums import sum_of  # most sessions have one broker

    found = [one for one in ask_shards(session, slots=slots) if one is not None]
    if not found:
        raise _gone(session)
    return sum_of(found)


def ask_shards(session: SessionFile, *, slots: bool = False) -> list[SessionNumbers | None]:
    """As `ask_numbers`, of each broker of the session; None: it does not answer."""
    found: list[SessionNumbers | None] = []
    for shard in shards_of(session):
        try:
            found.append(_ask(shard, AskNumbers(slots=slots), SessionNumbers))
        except UnreachableError:
            found.append(None)
    return found


def ask_failures(session: SessionFile, *, tag: str = "", function: str = "") -> SessionFailures:
    """The tasks that failed last, as the broker keeps them.

    Raises: as `ask_numbers`.
    """
    question = AskFailures(tag=tag, function=function)
    if not session.shards:
        return _ask(session, question, SessionFailures)
    found: list[SessionFailures] = []
    for shard in shards_of(session):
        with contextlib.suppress(UnreachableError):
            found.append(_ask(shard, question, SessionFailures))
    if not found:
        raise _gone(session)
    newest = sorted((one for shard in found for one in shard.failures), key=lambda one: one.ago_ms)
    return SessionFailures(failures=tuple(newest[:MAX_FAILURES]), ever=sum(shard.ever for shard in found))


def _ask(session: SessionFile, question: SessionFrame, kind: type[A]) -> A:
    link, _ = connect(session)
    try:
        link.send(question)
        while frames := link.receive():
            for frame in frames:
                if isinstance(frame, kind):
                    return frame
    finally:
        link.close()
    raise _gone(session)


def _gone(session: SessionFile) -> UnreachableError:
    return UnreachableError(f"the broker of session '{session.name}' is gone")
