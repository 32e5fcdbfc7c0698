"""How the processes of a session reach its broker: over a Unix socket of this machine, or over TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.core.model.errors import DeniedError, HALError, UnreachableError
from hal.runtime.frame_link import FrameLink, dial
from hal.runtime.session_file import SessionFile, parse_address
from hal.wire.frames.conversation import Conversation


def dial_broker(session: SessionFile, conversation: Conversation[Any], timeout_s: float) -> FrameLink[Any]:
    """Connect to a session's broker, at the first of its addresses that answers.

    Raises:
        UnreachableError: nobody answers at the last one.
        DeniedError: whoever answers there is not the broker of this session.
        SpecError: it is not an address.
    """
    failure: HALError = UnreachableError("the session has no address")
    for address in session.dialled:
        place = parse_address(address)
        try:
            if isinstance(place, Path):
                return dial(place, conversation, timeout_s)
            from hal.runtime.tls_frame_link import dial_tls_link  # most sessions are on one machine

            return dial_tls_link(*place, session, conversation, timeout_s)
        except (UnreachableError, DeniedError) as error:
            failure = error
    raise failure
