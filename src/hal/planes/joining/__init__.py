"""Who may join and speak as a node of another machine: one-time tokens, issued certificates, revocation.

Decisions only: no key, no socket, no clock. Import names from here.
"""

from hal.planes.joining.membership import (
    MAX_LIFE_MS,
    MAX_TOKENS,
    Membership,
    TokenState,
    hash_of,
    state_of,
)
from hal.planes.joining.plane import JoiningPlane

__all__ = ["MAX_LIFE_MS", "MAX_TOKENS", "JoiningPlane", "Membership", "TokenState", "hash_of", "state_of"]
