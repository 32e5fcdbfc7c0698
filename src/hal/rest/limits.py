"""How much anybody may ask of a daemon. A value; no I/O."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

DEFAULT_REQUEST_BYTES: Final = 128 << 20
DEFAULT_USER_REQUEST_BYTES: Final = 8 << 20


class Limits(Struct, frozen=True, kw_only=True):
    """Of each user but the owner and root; the longest body of anybody."""

    requests_per_s: int = 200
    """Requests a second in the long run."""
    burst: int = 1_000
    """Requests after a pause."""
    at_once: int = 300
    """Requests under way, long polls and streams included."""
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    """Longest body of a request that is read whole."""
    max_user_request_bytes: int = DEFAULT_USER_REQUEST_BYTES
    """The same, of whoever has the role user."""
    section: str = "access"
    """Of hal.toml, in which the first three are set: refusals name it."""
    too_large_hint: str = "send it in parts"
    """What whoever sends too long a body can do."""
