"""What the task plane asks of the engine: it reads, it never decides and never changes.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from hal.core.engine.classes import ClassSpec, Elsewhere
from hal.core.engine.events import Event
from hal.core.model import Never, Outlook, Verdict


class EngineView(Protocol):
    """The engine's answers."""

    def never_fits(
        self, request: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None
    ) -> Never | None:
        """Why no set of the present nodes or offers could ever give this, with what the largest could; None if one
        could.

        without: nodes that do not count. only: nodes that alone count; None: all.
        """

    def met_by(self, job: int, walltime_ms: int) -> str:
        """The booking that running tasks of the job would run into with that walltime; '' when none."""

    def explain(self, job: int, now_ms: int, *, brief: bool = False) -> Verdict:
        """Why the job's waiting tasks do not start.

        Args:
            brief: only the reason, without what takes more than some ten microseconds to work out.
        """

    def look(self, job: int, now_ms: int, elsewhere: Sequence[Elsewhere]) -> Outlook | None:
        """What would let its first waiting task start now, and when it starts as it is. None: takes too long.

        elsewhere: the job in other queues.
        """

    def foresee(
        self, submitted: Sequence[Event], jobs: Sequence[int], now_ms: int
    ) -> tuple[dict[int, int], int] | None:
        """When each of these jobs would start if they were submitted now, as far as that is foreseen, and how far that
        is: INF where nothing happens afterwards. None: takes too long."""
