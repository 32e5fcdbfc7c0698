"""The smallest plane there can be: notes by name, each a row of its own; and it fails wherever a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hal.core.engine.events import Event, Health, NodesChanged, NodeSpec
from hal.planes.interface import Rows, Sealed, Work
from hal.store import Operation, PutMeta, Store

PREFIX = "note/"
POISON = "poison"
"""A note of this text makes the plane fail at the point that the test named, whenever it is among those staged."""
REQUEST_POINTS = ("unsettled", "settling", "take_engine_events", "engine", "sealing", "operations", "rows")
"""Where a request can make it fail, besides as it is staged."""


class PlaneError(Exception):
    """What the plane raises."""


class NotesPlane:
    """See the module; `fails_at` names the method."""

    name = "notes"

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.fails_at: dict[str, int] = {}
        """By method, how often it still fails, whatever was staged."""
        self.poisoned_at = ""
        """The method that fails while a poisoned note is staged."""
        self.reads = 0
        self._before: dict[str, str | None] = {}

    def write(self, name: str, text: str) -> str:
        """Stage a note; returns its text."""
        self._fail("write")
        self._before.setdefault(name, self.notes.get(name))
        self.notes[name] = text
        return text

    def _fail(self, where: str) -> None:
        if self.fails_at.get(where):
            self.fails_at[where] -= 1
            raise PlaneError(where)
        if where == self.poisoned_at and POISON in [self.notes[name] for name in self._before]:
            raise PlaneError(where)

    def _poisons(self, where: str) -> bool:
        try:
            self._fail(where)
        except PlaneError:
            return True
        return False

    # ── as the loop sees it ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def staged(self) -> bool:
        self._fail("staged")
        return bool(self._before)

    @property
    def unsettled(self) -> bool:
        self._fail("unsettled")
        return bool(self._before)

    def settling(self) -> Work[None]:
        self._fail("settling")
        yield

    def take_engine_events(self) -> list[Event]:
        self._fail("take_engine_events")
        return [_contradiction()] if self._poisons("engine") else []

    def sealing(self, now_ms: int) -> Work[Sealed]:
        self._fail("sealing")
        yield
        if self._poisons("operations"):
            return _NoRows()
        rows = {PREFIX + name: self.notes[name] for name in self._before}
        return Rows((PutMeta(rows | {"unstorable": "\ud800"} if self._poisons("rows") else rows),))

    def keep(self) -> None:
        self._fail("keep")
        self._before.clear()

    def undoing(self) -> Work[None]:
        self._fail("undoing")
        for name, before in self._before.items():
            if before is None:
                del self.notes[name]
            else:
                self.notes[name] = before
        self._before.clear()
        yield

    def engine_events(self) -> list[Event]:
        self._fail("engine_events")
        return [_contradiction()] if self._poisons("told") else [NodesChanged()]

    def read(self, store: Store) -> Callable[[], None]:
        self._fail("read")
        rows = store.facts(PREFIX)

        def install() -> None:
            self._fail("install")
            self.reads += 1
            self.notes = {name.removeprefix(PREFIX): text for name, text in rows.items()}
            self._before.clear()

        return install


class _NoRows:
    """Rows that cannot be read."""

    has_effects = False

    @property
    def operations(self) -> Sequence[Operation]:
        raise PlaneError("operations")


def _contradiction() -> Event:
    """An event that the engine refuses."""
    return NodesChanged((NodeSpec("ghost", {"cpu": -1}, {}, Health.UP),))
