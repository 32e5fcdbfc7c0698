"""The policy in force when a controller starts: the stored one, or hal.toml if that was changed since it was loaded.

Pure. The stored policy is the truth. hal.toml is taken in as a new version when its policy part differs from the one
that was taken in last (a digest of it is kept); otherwise what was changed by REST or the command line stays. A file
that would remove something is not taken in unless somebody accepts that: no restart removes a limit by itself.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from hal.core.model import from_json, to_json
from hal.core.model.policy import Policy
from hal.core.model.policy_change import differences, removals
from hal.core.model.policy_delegation import keep_delegated
from hal.store import PolicyRow

TAKEN_IN = "policy-of-hal-toml"
"""Name of the stored fact that holds the digest."""


MAX_NAMED = 10
"""Entries that a warning names."""


class PolicyFile:
    """hal.toml as this controller read it, where it was changed and would take away what was set by commands.

    Such a file is not taken in: the policy that holds stays until somebody says otherwise (`hal up --accept-policy`, or
    any change after which the policy is what the file says).
    """

    def __init__(self, declared: Policy) -> None:
        self._declared = declared
        self._waits = ""
        """Digest of the file while it is not taken in; '' otherwise."""
        self._seen: tuple[int, tuple[str, ...]] = (-1, ())

    def keep_out(self, digest: str) -> None:
        """Do not take in the file, which has this digest."""
        self._waits = digest

    def lost(self, active: Policy) -> tuple[str, ...]:
        """What the file would remove from the active policy; () when it was taken in. Looked for once a version."""
        if not self._waits:
            return ()
        if self._seen[0] != active.version:
            self._seen = (active.version, tuple(lost_by(self._declared, active)))
        return self._seen[1]

    def warning(self, active: Policy) -> str:
        """What people should know; '' for nothing."""
        lost = self.lost(active)
        if not lost:
            return ""
        named = ", ".join(lost[:MAX_NAMED]) + (f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else "")
        return (
            f"hal.toml was changed and is not in force: it would remove {named} from the policy (version "
            f"{active.version}). To apply it: hal up --accept-policy. To keep what holds, bring the file up to date: "
            "hal policy show -o toml"
        )

    def taken_in(self, active: Policy) -> str:
        """The digest to store now that the policy is what the file says; '' if it is not, or was taken in before."""
        if not self._waits or differences(active, keep_delegated(self._declared, active)):
            return ""
        digest, self._waits = self._waits, ""
        return digest


def lost_by(declared: Policy, active: Policy) -> list[str]:
    """What a hal.toml would remove from the policy."""
    return removals(differences(active, keep_delegated(declared, active)))


class PolicyStart(Struct, frozen=True):
    """What holds, and whether the file comes over it."""

    policy: Policy
    """The stored one; where none is stored, the one declared, as version 0."""
    take_in: bool
    digest: str


def policy_at_start(stored: PolicyRow | None, taken_in: str | None, declared: Policy) -> PolicyStart:
    """Decide.

    Args:
        stored: the newest version.
        taken_in: the digest of what was last taken in.
        declared: the policy part of hal.toml, checked.
    Raises:
        SpecError: the stored document is not one that this version reads.
    """
    digest = hashlib.blake2b(to_json(declared), digest_size=16).hexdigest()
    if stored is None:
        return PolicyStart(declared, True, digest)
    return PolicyStart(from_json(stored.document, Policy), taken_in != digest, digest)
