"""An authority of its own for a test, and what it gives to controller and nodes."""

from __future__ import annotations

import time
from pathlib import Path

from hal.runtime.authority import NodeIdentity, new_request, open_authority
from hal.runtime.interface import Credentials
from hal.wire.roles import Role

DAY_MS = 86_400_000


class Certified:
    """One HAL's authority, with a controller."""

    def __init__(self, root: Path, name: str = "hal") -> None:
        self._root = root / name
        self._root.mkdir(parents=True)
        self.authority = open_authority(self._root / "authority", now_ms())
        self.authority.certify_controller("controller", now_ms())
        self.controller = self.authority.credentials

    def node(self, name: str, *, ago_ms: int = 0) -> NodeIdentity:
        """A node whose certificate, valid for a day, was issued so long ago."""
        key, request = new_request()
        issued = self.authority.certify(request, Role.AGENT, name, now_ms() - ago_ms, DAY_MS)
        identity = NodeIdentity(self._root / "nodes" / f"{name}.{ago_ms}" / "identity")
        identity.trust(self.authority.pem)
        identity.store_certificate(issued.certificate, key, self.authority.pem)
        return identity

    def credentials(self, role: Role, name: str) -> Credentials:
        """What a process of this role presents."""
        if role is Role.CONTROLLER:
            return self.controller
        key, request = new_request()
        issued = self.authority.certify(request, role, name, now_ms(), DAY_MS)
        file = self._root / f"{role}-{name}.pem"
        file.write_text(issued.certificate + key)
        return Credentials(self.controller.authority, file)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
