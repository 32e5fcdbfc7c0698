"""The keeper's lease: until when its guarded steps may run, and whether a start may still be carried out.

Pure. It runs from the keeper's own stamp, which an acknowledgement (or a start) of the controller brings back: how long
that was on its way makes it shorter, never longer. Only a leader of the highest epoch heard renews it. Rules:
docs/architecture.md, 'Leases'.
"""

from __future__ import annotations

from hal.daemons.agent.keeper.ports import Instant


class Lease:
    """One keeper's."""

    def __init__(self, lease_ms: int) -> None:
        """`lease_ms`: how long it runs where the controller does not say."""
        self._default_ms = lease_ms
        self.until_boot_ms = 0
        """Its last millisecond; 0: there was none yet."""

    def renewed(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> None:
        """The controller has acknowledged that stamp."""
        if 0 < stamp_boot_ms <= now.boot_ms:
            self.until_boot_ms = max(self.until_boot_ms, stamp_boot_ms + (lease_ms or self._default_ms))

    def lapsed(self, now: Instant) -> bool:
        """Whether what runs under it must end."""
        return now.boot_ms > self.until_boot_ms

    def refusal(self, stamp_boot_ms: int, lease_ms: int, now: Instant) -> str:
        """Why a start with that stamp is not carried out; '' when it is."""
        if stamp_boot_ms <= 0:
            return "it carries no lease stamp"
        age_ms = now.boot_ms - stamp_boot_ms
        if age_ms < 0:
            return f"its lease stamp lies {-age_ms} ms ahead: it is from another boot"
        allowed_ms = lease_ms or self._default_ms
        return f"its lease stamp is {age_ms} ms old; at most {allowed_ms} are allowed" if age_ms > allowed_ms else ""
