"""What the control loop knows of a plane, which is a part of the controller's memory: all are committed together.

A plane stages what a request asks for in memory. When the group is complete it gives the rows of it (`sealing`), which
are committed in one transaction with those of the other planes; then it keeps what it staged, or undoes it. Nothing is
staged in between. Whatever a plane raises concerns its own requests alone: see `plane_group` in the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from hal.core.engine.events import Event
from hal.core.engine.plan import Plan
from hal.core.model import HALError
from hal.store import Operation, Store

T = TypeVar("T")

MAX_WITHDRAWN_A_BLOCK: Final = 64
"""Ranges of tasks that leave, in one event for the engine, which looks at all that it knows of the job for each: an
event of so many is the last one that the loop feeds it in a turn."""

Work = Generator[None, None, T]
"""Long work cut into slices: yields between them, where others may have a turn, and returns its result."""


class FalseReportError(HALError):
    """What a node reported cannot be true: the node is to blame, and is quarantined.

    Whatever else a plane raises while it stages a report is a fault of HAL.
    """

    code = "false-report"


class Sealed(Protocol):
    """What a plane has staged since the last commit."""

    @property
    def operations(self) -> Sequence[Operation]:
        """Its rows, in the order in which they are written."""

    @property
    def has_effects(self) -> bool:
        """Whether something follows from it although there may be no row to write."""


class Rows:
    """A `Sealed` of rows alone."""

    __slots__ = ("operations",)

    has_effects = False

    def __init__(self, operations: Sequence[Operation] = ()) -> None:
        self.operations = operations


SealedT_co = TypeVar("SealedT_co", bound=Sealed, covariant=True)


class Staging(Protocol[SealedT_co]):
    """What every plane can do. All calls come from the control loop, one at a time; none waits for anything outside.

    A method whose name is a gerund is a generator that yields between slices of some milliseconds.
    """

    @property
    def name(self) -> str:
        """One word, unique in a controller; for logs and errors."""

    @property
    def staged(self) -> bool:
        """Whether anything was staged since the last `keep` or `undoing`; one without is not sealed, kept or undone."""

    @property
    def unsettled(self) -> bool:
        """Whether something that follows from what was staged is left to `settling`."""

    def settling(self) -> Work[None]:
        """Stage what follows from what was staged; nothing else is staged before it has ended."""

    def take_engine_events(self) -> list[Event]:
        """Return what was staged for the engine since the last call, in order."""

    def sealing(self, now_ms: int) -> Work[SealedT_co]:
        """Return all that was staged; `keep` or `undoing` follows."""

    def keep(self) -> None:
        """Keep what was sealed: its rows are committed."""

    def undoing(self) -> Work[None]:
        """Return to where the last `keep` left it; also called when nothing was sealed yet."""

    def engine_events(self) -> Iterable[Event]:
        """Return what brings an engine that knows nothing of this plane to where the plane is; nothing is staged."""


class Plane(Staging[Sealed], Protocol):
    """A plane beside the lead plane: asked only if it has staged something; it recovers from its rows if it fails."""

    def read(self, store: Store) -> Callable[[], None]:
        """Read its rows, on another thread and changing nothing; the function returned, called in the loop, makes its
        memory what they say, whatever it was before. So it begins, and so it recovers after it has failed.

        Raises:
            StoreError: they cannot be read.
        """


SealedT = TypeVar("SealedT", bound=Sealed)


class LeadPlane(Staging[SealedT], Protocol[SealedT]):
    """The plane that carries out what the engine decides. It is sealed with every group, and a controller whose lead
    plane fails with nothing to blame for it ends."""

    def end_with_bookings(self, now_ms: int) -> int:
        """Stage what follows from bookings that have begun or ended."""

    @property
    def next_due_ms(self) -> int:
        """When something is due by itself, which `carrying_out_due` does; the engine's infinity for never."""

    def carrying_out_due(self, now_ms: int) -> Work[None]:
        """Stage what is due."""

    def carry_out(self, plan: Plan, row_name: Callable[[int], str], epoch: int, now_ms: int, *, credit: bool) -> None:
        """Stage a plan that the engine has assumed.

        Args:
            row_name: the node of a row of the plan.
            epoch: of the controller whose decision it is.
            credit: more may be started on credit; the engine has nothing else to place now.
        """

    def add_operations(self, *operations: Operation) -> None:
        """Stage rows of the controller's own."""

    @property
    def crowded(self) -> bool:
        """Whether `keep` has memory to give back, also after nothing was staged."""

    def discard(self, sealed: SealedT) -> None:
        """Let go of a change that nobody reads any more, in slices (`free_discarded`)."""

    @property
    def has_discarded(self) -> bool:
        """Whether there is anything to be freed."""

    def free_discarded(self) -> None:
        """Free one slice of it."""


def finished(work: Work[T]) -> T:
    """Do all slices at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: Any = end.value
            return value  # type: ignore[no-any-return]
