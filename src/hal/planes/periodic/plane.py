"""The plane of periodic jobs: changes of them, staged with the submissions of a group and undone with these.

Pure. What is staged is in `rows` at once, and in `committed` when it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from hal.core.engine.events import Event
from hal.core.model import ConflictError, NotFoundError, OverloadedError
from hal.planes.interface import Rows, Work
from hal.store import PeriodicRow, PeriodicRun, PutPeriodic, Store

MAX_OF_USER: Final = 100
"""Periodic jobs of one user."""
MAX_PERIODIC: Final = 10_000
"""Of all users together."""


class PeriodicPlane:
    """See `hal.planes.interface.Plane`."""

    name = "periodic"
    unsettled = False

    def __init__(self) -> None:
        self.rows: dict[int, PeriodicRow] = {}
        """By id, as staged."""
        self.committed: dict[int, PeriodicRow] = {}
        """By id, as last committed; for readers."""
        self._ids: dict[tuple[str, str], int] = {}
        """By user and name, as staged."""
        self._counts: Counter[str] = Counter()
        """By user, as staged."""
        self._last_id = 0
        self._touched: set[int] = set()
        self._runs: list[PeriodicRun] = []

    # ── change ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, row: PeriodicRow, *, replace: bool = False) -> None:
        """Stage a new periodic job; with `replace`, in the place of the one of its name.

        Args:
            row: its id is that of the one that it replaces, or `new_id`.
        Raises:
            ConflictError: there is one of this name.
            OverloadedError: there are too many.
        """
        known = self._ids.get((row.user, row.name))
        if known is not None and not replace:
            raise ConflictError(
                f"there is a periodic job '{row.name}' already", hint="--replace changes it; hal cron list shows all"
            )
        if known is None:
            self._check_room(row.user)
        self._put(row)

    def change(self, row: PeriodicRow, runs: Iterable[PeriodicRun] = ()) -> None:
        """Stage a change of a periodic job, and entries of its history."""
        self._put(row)
        self._runs += runs

    def remove(self, row: PeriodicRow) -> None:
        """Stage that it goes, with its history."""
        self._drop(row.id)
        self._touched.add(row.id)

    @property
    def new_id(self) -> int:
        """The id of the next new one."""
        return self._last_id + 1

    def named(self, user: str, name: str) -> PeriodicRow:
        """Return a periodic job as it is staged.

        Raises:
            NotFoundError: there is none.
        """
        found = self._ids.get((user, name))
        if found is None:
            raise NotFoundError(f"user '{user}' has no periodic job '{name}'", hint="`hal cron list` lists them")
        return self.rows[found]

    def find(self, user: str, name: str) -> PeriodicRow | None:
        """Return a periodic job as it is staged; None: there is none."""
        found = self._ids.get((user, name))
        return None if found is None else self.rows[found]

    def _check_room(self, user: str) -> None:
        if self._counts[user] >= MAX_OF_USER:
            raise OverloadedError(
                f"user '{user}' has {MAX_OF_USER} periodic jobs", hint="remove one: `hal cron remove NAME`"
            )
        if len(self.rows) >= MAX_PERIODIC:
            raise OverloadedError(f"there are {MAX_PERIODIC} periodic jobs", hint="some must be removed first")

    def _put(self, row: PeriodicRow) -> None:
        self._set(row)
        self._touched.add(row.id)

    def _set(self, row: PeriodicRow) -> None:
        if row.id not in self.rows:
            self._counts[row.user] += 1
        self.rows[row.id] = row
        self._ids[row.user, row.name] = row.id
        self._last_id = max(self._last_id, row.id)

    def _drop(self, row_id: int) -> None:
        row = self.rows.pop(row_id)
        del self._ids[row.user, row.name]
        self._counts[row.user] -= 1

    # ── as the loop sees it ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def staged(self) -> bool:
        return bool(self._touched)

    def settling(self) -> Work[None]:
        yield from ()

    def take_engine_events(self) -> list[Event]:
        return []

    def sealing(self, now_ms: int) -> Work[Rows]:
        yield from ()
        rows = tuple(self.rows[one] for one in sorted(self._touched) if one in self.rows)
        gone = tuple(one for one in sorted(self._touched) if one not in self.rows and one in self.committed)
        return Rows((PutPeriodic(rows, gone, tuple(run for run in self._runs if run.periodic in self.rows)),))

    def keep(self) -> None:
        for one in self._touched:
            row = self.rows.get(one)
            if row is None:
                self.committed.pop(one, None)
            else:
                self.committed[one] = row
        self._clear()

    def undoing(self) -> Work[None]:
        for one in self._touched:
            if one in self.rows:
                self._drop(one)
        for one in self._touched & self.committed.keys():
            self._set(self.committed[one])
        self._clear()
        yield from ()

    def _clear(self) -> None:
        self._touched.clear()
        self._runs.clear()

    def engine_events(self) -> list[Event]:
        return []

    def read(self, store: Store) -> Callable[[], None]:
        return partial(self._load, store.periodic())

    def _load(self, rows: list[PeriodicRow]) -> None:
        self._clear()
        self.rows, self._ids, self._counts, self._last_id = {}, {}, Counter(), 0
        for row in rows:
            self._set(row)
        self.committed = dict(self.rows)
