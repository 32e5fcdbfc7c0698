"""A service that takes the place of another one: what is remembered of it while it is under way.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.model import JobSpec
from hal.core.model.service import Replacement


class Replacing(Struct):
    """A replacement that is under way."""

    old: int
    look_ms: int
    """When it is looked at next."""
    progress_ms: int
    """When a task of the new job last became ready; at first, when it began."""
    best: int = 0
    """Most tasks of the new job that were ready at once."""


def replacement_of(spec: JobSpec) -> Replacement | None:
    """What the job replaces."""
    return None if spec.service is None else spec.service.replaces


BEING_REPLACED = "being replaced by job "
"""How the reason of a job begins that a new one is about to replace."""


def held_by(new: int) -> str:
    """The reason of a job that a new one is about to replace."""
    return f"{BEING_REPLACED}{new}"


def replaces_text(old: int) -> str:
    """The reason of a job that is about to replace an old one."""
    return f"replaces job {old}"
