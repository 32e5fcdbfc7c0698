"""Limits for a TCP client that has not presented a certificate yet. Pure constants."""

from __future__ import annotations

from typing import Final

HANDSHAKE_MS: Final = 5_000
"""How long a TLS handshake may take."""
STRANGER_MS: Final = 10_000
"""How long a connection without a certificate may live, from its acceptance."""
MAX_STRANGERS: Final = 256
"""Connections of one listener in their handshake, or without a certificate."""
STRANGER_GRACE_MS: Final = 1_000
"""When the limit is reached, the oldest is closed for the next one once it is this old."""
