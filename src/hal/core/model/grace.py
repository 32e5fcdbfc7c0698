"""How long processes that are told to end have before they are killed."""

from typing import Final

DEFAULT_GRACE_MS: Final = 10_000
"""Between SIGTERM and SIGKILL, where nothing else is asked for."""
