"""What the task plane asks of the engine: it reads, it never decides and never changes.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hal.core.engine.classes import ClassSpec, Elsewhere
from hal.core.model import Outlook, Verdict


class EngineView(Protocol):
    """The engine's answers."""

    def impossible(self, request: ClassSpec) -> str:
        """Why no set of the present nodes could ever give this, with what the largest could; '' if one could."""

    def met_by(self, job: int, walltime_ms: int) -> str:
        """The booking that running tasks of the job would run into with that walltime; '' when none."""

    def explain(self, job: int, now_ms: int) -> Verdict:
        """Why the job's waiting tasks do not start."""

    def look(self, job: int, now_ms: int, elsewhere: Sequence[Elsewhere]) -> Outlook | None:
        """What would let its first waiting task start now, and when it starts as it is. None: takes too long.

        elsewhere: the job in other queues.
        """
