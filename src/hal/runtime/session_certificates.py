"""Certificates with which the processes of one session know each other on the network.

The client that opens the session makes an authority for it, has it sign two certificates, and forgets its key: so
nobody joins later. One certificate is the broker's and is only in the broker's file; the other is that of all who dial
it. Loaded, with `cryptography`, for sessions over several machines only.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hal.runtime.authority import new_authority, new_request
from hal.runtime.session_file import SessionFile
from hal.wire.roles import Role

LIFETIME_MS: Final = 3_650 * 86_400_000
"""A session may be as old as that."""


def over_network(session: SessionFile, listen: str, now_ms: int) -> tuple[SessionFile, SessionFile]:
    """Let a session's broker listen at one more address, with TLS.

    Args:
        listen: `tcp:HOST:PORT`.
        now_ms: this machine's clock.
    Returns: the file for the broker, and that for all who dial it, which does not name the new address.
    """
    authority = new_authority(now_ms)

    def certified(role: Role) -> str:
        key, request = new_request()
        return authority.certify(request, role, session.id, now_ms, LIFETIME_MS).certificate + key

    broker = msgspec.structs.replace(
        session,
        listen=(*session.listen, listen),
        dial=session.dialled,
        authority=authority.pem,
        certificate=certified(Role.BROKER),
    )
    return broker, msgspec.structs.replace(broker, listen=session.listen, certificate=certified(Role.CLIENT))
