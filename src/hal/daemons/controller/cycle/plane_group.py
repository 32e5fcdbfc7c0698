"""The planes of one controller as one: staged together, committed in one transaction, kept or undone together.

The loop knows planes by `hal.planes.interface` alone: one leads (it carries out what the engine decides), others are
attached. What a plane raises while it stages, settles or seals is the fault of a request, which the loop finds and
answers. What an attached plane raises where nothing is to blame for it, as it keeps or undoes, ends nothing either: it
is out of service, its requests are refused with the reason, and its rows are read again until its memory is what they
say. A lead plane that fails there ends the controller, whose successor starts from what is durable; what is due of it
by itself is staged like a request (see `control_loop`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from hal.core.engine.events import Event
from hal.core.model import HALError, InternalError
from hal.planes.interface import LeadPlane, Plane, Sealed, Work
from hal.runtime.interface import Logger
from hal.store import Operation

SealedT = TypeVar("SealedT", bound=Sealed)
PlaneT = TypeVar("PlaneT", bound=Plane)
T = TypeVar("T")


class GroupChange(Generic[SealedT]):
    """All that was staged since the last commit."""

    __slots__ = ("lead", "operations")

    def __init__(self, lead: SealedT, operations: list[Operation]) -> None:
        self.lead = lead
        """What the lead plane staged."""
        self.operations = operations
        """The rows of all planes, those of the lead plane first."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.operations

    @property
    def has_effects(self) -> bool:
        """Whether something follows from it, whether or not there are rows."""
        return self.lead.has_effects


class PlaneFailed(InternalError):
    """An attached plane raised something."""

    def __init__(self, plane: Plane, error: Exception, *, out: bool = False) -> None:
        reason = str(error) if isinstance(error, HALError) else f"{type(error).__name__}: {error}"
        super().__init__(f"the {plane.name} plane failed: {reason}")
        self.plane = plane
        self.out = out
        """No request is to blame for it: the plane is out of service."""


class PlanePort(Generic[PlaneT]):
    """How requests reach an attached plane, in the loop."""

    __slots__ = ("_failed", "plane")

    def __init__(self, plane: PlaneT, failed: Mapping[str, str]) -> None:
        self.plane = plane
        """For reading; it may be out of service."""
        self._failed = failed

    def use(self) -> PlaneT:
        """Return the plane, to stage something in it.

        Raises:
            InternalError: it has failed and has not recovered yet.
        """
        if self.plane.name in self._failed:
            raise InternalError(
                f"the {self.plane.name} plane is out of service: {self._failed[self.plane.name]}",
                hint="everything else continues; it returns when its rows can be read again (see the controller's log)",
            )
        return self.plane


class PlaneGroup(Generic[SealedT]):
    """See the module. It has the methods of one plane."""

    def __init__(self, lead: LeadPlane[SealedT], log: Logger) -> None:
        self.lead = lead
        self._log = log
        self._attached: list[Plane] = []
        self._failed: dict[str, str] = {}
        """Why attached planes are out of service, by name."""
        self._told_by: Plane | None = None
        """The attached plane whose engine events are being applied."""

    def attach(self, plane: Plane) -> None:
        """Let a further plane take part; before the loop runs.

        Raises:
            InternalError: there is one of that name.
        """
        if plane.name in (self.lead.name, *(one.name for one in self._attached)):
            raise InternalError(f"there is a plane '{plane.name}' already")
        self._attached.append(plane)

    def port(self, plane: PlaneT) -> PlanePort[PlaneT]:
        """What requests reach an attached plane by."""
        return PlanePort(plane, self._failed)

    # ── one group ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def unsettled(self) -> bool:
        """See `Staging`; raises as `settling`."""
        return self.lead.unsettled or any(plane.unsettled for plane in self._busy())

    def settling(self) -> Work[None]:
        """See `Staging`.

        Raises:
            PlaneFailed: an attached plane did. What the lead plane raises is passed on.
        """
        yield from self.lead.settling()
        for plane in self._busy():
            yield from _guarded(plane, plane.settling)

    def take_engine_events(self) -> list[Event]:
        """See `Staging`; raises as `settling`."""
        events = self.lead.take_engine_events()
        for plane in self._busy():
            with _faults_of(plane):
                events += plane.take_engine_events()
        return events

    def sealing(self, now_ms: int) -> Work[GroupChange[SealedT]]:
        """See `Staging`; raises as `settling`."""
        lead = yield from self.lead.sealing(now_ms)
        operations = list(lead.operations)
        for plane in self._busy():
            operations += (yield from _guarded(plane, partial(plane.sealing, now_ms))).operations
        return GroupChange(lead, operations)

    def keep(self) -> None:
        """See `Staging`; raises what the lead plane raises."""
        self.lead.keep()
        for plane in self._in_service():
            try:
                if plane.staged:
                    plane.keep()
            except Exception as error:
                self.fail(plane, error)

    def undoing(self) -> Work[None]:
        """See `Staging`; raises what the lead plane raises."""
        yield from self.lead.undoing()
        for plane in self._in_service():
            try:
                if plane.staged:
                    yield from plane.undoing()
            except Exception as error:
                self.fail(plane, error)

    def engine_events(self) -> Iterator[Event]:
        """See `Staging`; raises what the lead plane raises. See `rejected`."""
        self._told_by = None
        yield from self.lead.engine_events()
        yield from self.attached_events()

    def attached_events(self) -> Iterator[Event]:
        """Those of the attached planes alone."""
        for plane in self._in_service():
            try:
                events = list(plane.engine_events())
            except Exception as error:
                self.fail(plane, error)
                continue
            self._told_by = plane
            yield from events
        self._told_by = None

    # ── planes that fail ──────────────────────────────────────────────────────────────────────────────────────────

    def rejected(self, error: Exception) -> bool:
        """The engine did not take the last of `engine_events`. Returns whether it is to be told again, now without
        those of the attached plane that is to blame."""
        plane, self._told_by = self._told_by, None
        if plane is None:
            return False
        self.fail(plane, error)
        return True

    def fail(self, plane: Plane, error: Exception) -> None:
        """Take an attached plane out of service: what it remembers need not be what is durable."""
        reason = str(error if isinstance(error, PlaneFailed) else PlaneFailed(plane, error))
        if self._failed.get(plane.name) != reason:
            self._log.error(
                "a plane is out of service until its rows are read again",
                plane=plane.name,
                reason=reason,
                exc_info=error,
            )
        self._failed[plane.name] = reason

    @property
    def attached(self) -> list[Plane]:
        """All planes but the lead plane."""
        return list(self._attached)

    def in_service(self) -> dict[str, bool]:
        """Whether each plane is in service, by name; the lead plane always is."""
        return {self.lead.name: True, **{plane.name: plane.name not in self._failed for plane in self._attached}}

    @property
    def failed(self) -> list[Plane]:
        """Attached planes that are out of service."""
        return [plane for plane in self._attached if plane.name in self._failed]

    def restore(self, plane: Plane, install: Callable[[], None]) -> bool:
        """Put a plane into service with what was read of its rows; returns whether the engine must be told of it."""
        try:
            install()
            told = any(True for _ in plane.engine_events())
        except Exception as error:
            self.fail(plane, error)
            return False
        if self._failed.pop(plane.name, None) is not None:
            self._log.info("a plane is in service again", plane=plane.name)
        return told

    def _in_service(self) -> list[Plane]:
        return [plane for plane in self._attached if plane.name not in self._failed]

    def _busy(self) -> Iterator[Plane]:
        """Planes in service that have staged something. Raises PlaneFailed (`out`)."""
        for plane in self._in_service():
            try:
                staged = plane.staged
            except Exception as error:
                self.fail(plane, error)
                raise PlaneFailed(plane, error, out=True) from error
            if staged:
                yield plane


@contextmanager
def _faults_of(plane: Plane) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise PlaneFailed(plane, error) from error


def _guarded(plane: Plane, work: Callable[[], Work[T]]) -> Work[T]:
    with _faults_of(plane):
        return (yield from work())
