"""What anybody who has a session's file may ask its broker, over a connection of its own."""

from __future__ import annotations

from typing import TypeVar

from hal.client.sessions.broker_connection import connect
from hal.core.model.errors import UnreachableError
from hal.runtime.session_file import SessionFile
from hal.wire.frames.sessions import AskFailures, AskNumbers, SessionFailures, SessionFrame, SessionNumbers

A = TypeVar("A", bound=SessionFrame)


def ask_numbers(session: SessionFile, *, slots: bool = False) -> SessionNumbers:
    """How the session goes.

    Args:
        slots: of each slot, function and tag, and over time, too.
    Raises:
        UnreachableError: its broker does not answer.
        HALError: it refuses.
    """
    return _ask(session, AskNumbers(slots=slots), SessionNumbers)


def ask_failures(session: SessionFile, *, tag: str = "", function: str = "") -> SessionFailures:
    """The tasks that failed last, as the broker keeps them.

    Raises: as `ask_numbers`.
    """
    return _ask(session, AskFailures(tag=tag, function=function), SessionFailures)


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
    raise UnreachableError(f"the broker of session '{session.name}' is gone")
