"""The keeper's lease: how long its guarded steps may run, and whether a start may still be executed.

Pure. It runs from the keeper's own stamp, which an acknowledgement (or a start) of the controller returns: a delay on
the way makes it shorter, never longer. Only a leader of the highest epoch seen renews it. The boot clock begins at 0
again with each boot, so a stamp is that clock plus an offset of the boot: what was sent to an earlier boot of this host
is not valid in this one. Rules: docs/architecture.md, 'Leases'.
"""

from __future__ import annotations

import hashlib
from typing import Final

from hal.daemons.agent.keeper.ports import Instant

OFFSET_BYTES: Final = 5
"""Range of a boot's offset, in ms: up to 34 years. Two boots are less than a minute apart once in ten million times."""


class Lease:
    """The lease of one keeper."""

    def __init__(self, lease_ms: int, boot_id: str) -> None:
        """`lease_ms`: its duration if the controller does not set it."""
        self._default_ms = lease_ms
        self._offset_ms = int.from_bytes(hashlib.blake2b(boot_id.encode(), digest_size=OFFSET_BYTES).digest())
        self.until_boot_ms = 0
        """Its last millisecond; 0: there was no lease yet."""

    def stamp(self, now: Instant) -> int:
        """Return the stamp that an acknowledgement or a start must return; above 0."""
        return now.boot_ms + self._offset_ms

    def renew(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> None:
        """Renew the lease: the controller has acknowledged that stamp."""
        made_ms = stamp_boot_ms - self._offset_ms
        if stamp_boot_ms > 0 and made_ms <= now.boot_ms:
            self.until_boot_ms = max(self.until_boot_ms, made_ms + (lease_ms or self._default_ms))

    def lapsed(self, now: Instant) -> bool:
        """Whether guarded steps must end."""
        return now.boot_ms > self.until_boot_ms

    def refusal(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> str:
        """Return why a start with that stamp is refused; '' if it is not."""
        if stamp_boot_ms <= 0:
            return "it carries no lease stamp"
        age_ms = self.stamp(now) - stamp_boot_ms
        if not 0 <= age_ms <= now.boot_ms:
            return "its lease stamp is from another boot"
        allowed_ms = lease_ms or self._default_ms
        return f"its lease stamp is {age_ms} ms old; at most {allowed_ms} are allowed" if age_ms > allowed_ms else ""
