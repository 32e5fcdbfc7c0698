"""The plane of joining: changes of tokens and certificates, staged with the requests of a group and undone with them.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hal.core.engine.events import Event
from hal.planes.interface import Rows, Work
from hal.planes.joining.membership import Membership
from hal.store import PutJoining, Store


class JoiningPlane:
    """See `hal.planes.interface.Plane`; what is staged is in `membership` at once."""

    name = "joining"
    unsettled = False

    def __init__(self) -> None:
        self.membership = Membership()
        self._staged: list[PutJoining] = []
        self._undo: list[PutJoining] = []
        """What undoes each of them."""

    def stage(self, change: PutJoining) -> PutJoining:
        """Make a change in memory, to be committed with the group; returns it."""
        self._undo.append(self.membership.apply(change))
        self._staged.append(change)
        return change

    @property
    def staged(self) -> bool:
        return bool(self._staged)

    def settling(self) -> Work[None]:
        yield from ()

    def take_engine_events(self) -> list[Event]:
        return []

    def sealing(self, now_ms: int) -> Work[Rows]:
        yield from ()
        return Rows(tuple(self._staged))

    def keep(self) -> None:
        self._staged.clear()
        self._undo.clear()

    def undoing(self) -> Work[None]:
        while self._undo:
            self.membership.apply(self._undo.pop())
        self._staged.clear()
        yield from ()

    def engine_events(self) -> list[Event]:
        return []

    def read(self, store: Store) -> Callable[[], None]:
        return partial(self._load, store.joining())

    def _load(self, rows: PutJoining) -> None:
        self.keep()
        self.membership.load(rows)
