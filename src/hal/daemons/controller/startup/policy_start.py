"""The policy in force when a controller starts: the stored one, or hal.toml if that was changed since it was loaded.

Pure. The stored policy is the truth. hal.toml is taken in as a new version when its policy part differs from the one
that was taken in last (a digest of it is kept); otherwise what was changed by REST or the command line stays.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from hal.core.model import from_json, to_json
from hal.core.model.policy import Policy
from hal.store import PolicyRow

TAKEN_IN = "policy-of-hal-toml"
"""Name of the stored fact that holds the digest."""


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
