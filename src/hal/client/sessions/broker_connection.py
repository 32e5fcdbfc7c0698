"""Opens the connection of a client to the broker of a session."""

from __future__ import annotations

import os
from typing import Final

from hal.core.model.errors import UnreachableError, error_from_code
from hal.runtime.frame_link import FrameLink
from hal.runtime.session_file import SessionFile, check_session
from hal.runtime.session_link import dial_broker
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import SESSIONS, OpenSession, SessionFrame, SessionOpened
from hal.wire.roles import Role

DIAL_S: Final = 10.0


def connect(session: SessionFile, worker: int = 0, client: str = "") -> tuple[FrameLink[SessionFrame], SessionOpened]:
    """Open the session at its broker.

    Args:
        worker: the number of the worker whose tasks this is for.
        client: the key of a client of a durable session.
    Raises:
        UnreachableError: none answers.
        HALError: it refuses.
    """
    check_session(session)
    link = dial_broker(session, SESSIONS, DIAL_S)
    hello = OpenSession(
        versions=SPOKEN,
        role=Role.CLIENT,
        session=session.id,
        token=session.token,
        pid=os.getpid(),
        worker=worker,
        client=client,
    )
    link.send(hello)
    frames = link.receive()
    match frames:
        case [SessionOpened() as opened, *others]:
            link.put_back(others)
            return link, opened
        case [Goodbye() as goodbye]:
            raise error_from_code(goodbye.code, goodbye.reason, goodbye.hint)
    raise UnreachableError("the broker closed the connection")
