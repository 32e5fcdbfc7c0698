"""By which the jobs of a session are found: labels, and what they say."""

from __future__ import annotations

from typing import Final

SESSION_LABEL: Final = "hal/session"
"""Of both jobs: the name of the session."""
PART_LABEL: Final = "hal/part"
SHAPE_LABEL: Final = "hal/shape"
"""Of jobs of slots: their shape, where it is not that of the session itself."""
BROKER: Final = "broker"
SLOTS: Final = "slots"
