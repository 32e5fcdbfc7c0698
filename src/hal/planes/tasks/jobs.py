"""Live jobs by id: objects of those that something has happened to, columns of those that only wait.

Pure. A packed job becomes an object when it is asked for by `[]` or `get`, since whoever does so may change it; `peek`,
`values` and `items` give copies of packed ones that are for reading only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from hal.core.model import to_json
from hal.core.model.policy_scope import Owner
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.packed import Packed
from hal.planes.tasks.slices import CHEAP_A_SLICE, Work
from hal.store.untouched import Untouched
from hal.store.views import JobFilter

MAX_OBJECTS: Final = 32_768
"""Up to so many live jobs all of them may be objects."""
PACKED_AT_ONCE: Final = 512
"""Jobs that one call of `pack_some` looks at, in 5 ms; what it shrinks comes on top (`SHRUNK_AT_ONCE`)."""


class Jobs:
    """All live jobs, as a mapping."""

    def __init__(self, made: Callable[[Untouched, int], LiveJob], unpacked: Callable[[LiveJob], None]) -> None:
        """Empty.

        Args:
            made: the job at that place of the columns.
            unpacked: called with each job that leaves its columns, before anything changes.
        """
        self._live: dict[int, LiveJob] = {}
        self.packed: list[Packed] = []
        """By ascending id."""
        self._firsts: list[int] = []
        """The first id of each."""
        self._made = made
        self._unpacked = unpacked
        self.max_objects = MAX_OBJECTS
        self._came: deque[int] = deque()
        """Jobs that may be packed one day, by ascending id."""

    def pack(self, columns: Untouched) -> None:
        """Jobs that wait untouched, of higher ids than those that are packed; they must not be here as objects."""
        if len(columns):
            self.packed.append(Packed(columns))
            self._firsts.append(columns.ids[0])

    def came(self, jobs: Iterable[int]) -> None:
        """New jobs, by ascending id, which are durable."""
        self._came.extend(jobs)

    @property
    def crowded(self) -> bool:
        """Whether there are so many objects that `pack_some` has something to do."""
        return bool(self._came) and len(self._live) > self.max_objects

    def pack_some(self, packed: Callable[[LiveJob], None]) -> None:
        """Make columns of the oldest objects that only wait, when there are many, and shrink columns that most left.

        Both in portions, of `PACKED_AT_ONCE` and `SHRUNK_AT_ONCE` jobs. Nothing may be staged.

        Args:
            packed: called with each that is an object no more.
        """
        if len(self._came) > 2 * len(self._live) + PACKED_AT_ONCE:
            self._came = deque(job for job in self._came if job in self._live)
        sparse = next((columns for columns in self.packed if columns.sparse), None)
        if sparse is not None:
            sparse.shrink()
        if not self.crowded:
            return
        rows: list[tuple[Any, ...]] = []
        texts: dict[int, str] = {}
        last = self.packed[-1].columns.ids[-1] if self.packed else 0
        for _ in range(min(PACKED_AT_ONCE, len(self._came))):
            job = self._live.get(self._came.popleft())
            if job is None or job.id <= last or not job.untouched:
                continue
            last = job.id
            text = texts.get(id(job.spec))
            if text is None:
                text = texts[id(job.spec)] = to_json(job.spec).decode()
            walltime_ms = -1 if job.walltime_ms is None else job.walltime_ms
            limits = (job.priority, walltime_ms, job.submit_ms, job.eligible_ms)
            rows.append((job.id, job.name, job.queue, job.account, job.user, *limits, job.trace_id, text))
        if not rows:
            return
        known = self.packed[-1] if self.packed else None
        columns = known if known is not None and not known.columns.full else Packed(Untouched())
        refused = set(columns.extend(rows))
        if columns is not known and len(columns):
            if known is not None:
                known.columns.settle()
            self.packed.append(columns)
            self._firsts.append(columns.columns.ids[0])
        for row in rows:
            if row[0] not in refused:
                packed(self._live.pop(row[0]))

    # ── as a mapping ──────────────────────────────────────────────────────────────────────────────────────────────

    def __getitem__(self, job: int) -> LiveJob:
        found = self.get(job)
        if found is None:
            raise KeyError(job)
        return found

    def get(self, job: int) -> LiveJob | None:
        """The job, which may be changed; None when there is none."""
        found = self._live.get(job)
        if found is not None:
            return found
        columns = self._columns_with(job)
        if columns is None:
            return None
        place = columns.place(job)
        found = self._live[job] = self._made(columns.columns, place)
        self._take(columns, place)
        self._unpacked(found)
        return found

    def __setitem__(self, job: int, value: LiveJob) -> None:
        columns = self._columns_with(job)
        if columns is not None:
            self._take(columns, columns.place(job))
        self._live[job] = value

    def __delitem__(self, job: int) -> None:
        del self._live[job]

    def pop(self, job: int) -> LiveJob | None:
        """Take out one that may have been changed; None when it is not here."""
        return self._live.pop(job, None)

    def __contains__(self, job: object) -> bool:
        return job in self._live or (isinstance(job, int) and self.is_packed(job))

    def __len__(self) -> int:
        return len(self._live) + self.waiting

    def __iter__(self) -> Iterator[int]:
        for columns in self.packed:
            yield from columns
        yield from self._live

    def values(self) -> Iterator[LiveJob]:
        """All of them, packed ones as copies for reading. Some microseconds for each that is packed."""
        return (job for _, job in self.items())

    def items(self) -> Iterator[tuple[int, LiveJob]]:
        """As `values`."""
        for job in self:
            found = self.peek(job)
            if found is not None:
                yield job, found

    # ── for reading ───────────────────────────────────────────────────────────────────────────────────────────────

    def peek(self, job: int) -> LiveJob | None:
        """The job as it is; not to be changed."""
        found = self._live.get(job)
        if found is None:
            columns = self._columns_with(job)
            if columns is not None:
                return self._made(columns.columns, columns.place(job))
        return found

    def is_packed(self, job: int) -> bool:
        """Whether it is in the columns: it waits, and nothing has happened to it."""
        return self._columns_with(job) is not None

    @property
    def waiting(self) -> int:
        """How many are packed."""
        return sum(map(len, self.packed))

    def unpacked(self) -> Collection[LiveJob]:
        """Those that are objects."""
        return self._live.values()

    def in_queues(self, queues: Collection[str]) -> list[int]:
        """Ids of jobs in one of these queues, ascending."""
        found = [job.id for job in self._live.values() if job.queue in queues]
        for columns in self.packed:
            found.extend(columns.in_queues(queues))
        return sorted(found)

    def matching(self, wanted: JobFilter) -> Work[list[int]]:
        """Ids of jobs that match everything that the filter sets, ascending. O(jobs), in slices: none may come or go
        meanwhile."""
        jobs = list(self._live.values())
        found: list[int] = []
        for at in range(0, len(jobs), CHEAP_A_SLICE):
            found.extend(job.id for job in jobs[at : at + CHEAP_A_SLICE] if _matches(job, wanted))
            yield
        for columns in list(self.packed):
            found.extend(columns.matching(wanted))
            yield
        return sorted(found)

    def packed_owners(self) -> list[tuple[Owner, int]]:
        """Whose packed jobs there are, and how many; each is one task that waits."""
        return [found for columns in self.packed for found in columns.owners()]

    def _columns_with(self, job: int) -> Packed | None:
        """The columns in which it is."""
        at = bisect_right(self._firsts, job) - 1
        return self.packed[at] if at >= 0 and self.packed[at].place(job) >= 0 else None

    def _take(self, columns: Packed, place: int) -> None:
        columns.take(place)
        if not len(columns):
            at = self.packed.index(columns)
            del self.packed[at], self._firsts[at]


def _matches(job: LiveJob, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or job.state in wanted.states)
        and (not wanted.user or job.user == wanted.user)
        and (not wanted.queue or job.queue == wanted.queue)
        and (not wanted.name or job.name == wanted.name)
        and (not wanted.account or job.account == wanted.account)
        and all(k in job.spec.labels and (not v or job.spec.labels[k] == v) for k, v in wanted.labels.items())
    )
