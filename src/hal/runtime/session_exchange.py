"""How a process of a session exchanges payloads over 1 MiB: as files, or over a connection if the broker is on another
machine.
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from typing import Any, Final

from hal.core.model.errors import UnreachableError
from hal.runtime.exchange import AnyExchange, open_exchange
from hal.runtime.frame_link import FrameLink
from hal.runtime.session_file import SessionFile
from hal.runtime.session_link import dial_broker
from hal.wire.agree import SPOKEN
from hal.wire.frames.sessions import SESSIONS, OpenSession, SessionOpened
from hal.wire.roles import Role

DIAL_S: Final = 10.0
WRITER_BYTES: Final = 4
"""Random, in the names of files."""


def payload_exchange(session: SessionFile, opened: SessionOpened, writer: str) -> AnyExchange | None:
    """The payloads of a session for this process; None: the broker exchanges none.

    Args:
        opened: what the broker has said.
        writer: unique among the processes that are connected to the broker and write for the same client. The files of
            those before it, of which a later broker may give the numbers to others, have other names nevertheless.
    """
    if not opened.directory:
        return None
    writer = f"{writer}-{secrets.token_hex(WRITER_BYTES)}"
    here = open_exchange(opened.directory, opened.place, writer)
    if here is not None:
        return here
    from hal.runtime.remote_exchange import RemoteExchange  # most sessions are on one machine

    return RemoteExchange(session.id, writer, partial(connect_for_payloads, session))


def connect_for_payloads(session: SessionFile) -> FrameLink[Any]:
    """Open a connection for payloads.

    Raises:
        HALError: the broker does not answer, or refuses.
    """
    link = dial_broker(session, SESSIONS, DIAL_S)
    hello = OpenSession(
        versions=SPOKEN, role=Role.CLIENT, session=session.id, token=session.token, pid=os.getpid(), files=True
    )
    link.send(hello)
    frames = link.receive()
    if not frames or not isinstance(frames[0], SessionOpened):
        raise UnreachableError("the broker takes no connection for payloads")
    link.put_back(frames[1:])
    return link
