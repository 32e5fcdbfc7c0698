"""Live jobs by id: objects for jobs to which something has happened, columns for jobs that only wait.

Pure. A job in columns becomes an object when it is asked for by `[]` or `get`, since whoever does so may change it;
`peek`, `values` and `items` give copies of those in columns, for reading only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from hal.core.model import to_json
from hal.core.model.name_patterns import name_matches
from hal.core.model.policy_scope import Owner
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.slices import CHEAP_A_SLICE, Work
from hal.planes.tasks.table.pending_jobs import PendingJobs
from hal.store.pending_columns import PendingColumns
from hal.store.views import JobFilter

MAX_OBJECTS: Final = 32_768
"""Up to so many live jobs all of them may be objects."""
MOVED_AT_ONCE: Final = 512
"""Jobs that one call of `move_some_to_columns` looks at, in 5 ms; what it shrinks comes on top (`SHRUNK_AT_ONCE`)."""


class JobsById:
    """All live jobs, as a mapping."""

    def __init__(self, made: Callable[[PendingColumns, int], LiveJob], left_columns: Callable[[LiveJob], None]) -> None:
        """Empty.

        Args:
            made: the job at that index of the columns.
            left_columns: called with each job that leaves its columns, before anything changes.
        """
        self._live: dict[int, LiveJob] = {}
        self.in_columns: list[PendingJobs] = []
        """By ascending id."""
        self._firsts: list[int] = []
        """The first id of each."""
        self._made = made
        self._left_columns = left_columns
        self.max_objects = MAX_OBJECTS
        self._came: deque[int] = deque()
        """Jobs that may move to columns one day, by ascending id."""

    def add_columns(self, columns: PendingColumns) -> None:
        """Add jobs that only wait, of higher ids than those that are in columns; they must not be here as objects."""
        if len(columns):
            self.in_columns.append(PendingJobs(columns))
            self._firsts.append(columns.ids[0])

    def came(self, jobs: Iterable[int]) -> None:
        """Add new jobs, by ascending id, which are durable."""
        self._came.extend(jobs)

    @property
    def crowded(self) -> bool:
        """Whether there are so many objects that `move_some_to_columns` has something to do."""
        return bool(self._came) and len(self._live) > self.max_objects

    def move_some_to_columns(self, entered_columns: Callable[[LiveJob], None]) -> None:
        """Make columns of the oldest objects that only wait, when there are many, and shrink columns that most left.

        Both in portions, of `MOVED_AT_ONCE` and `SHRUNK_AT_ONCE` jobs. Nothing may be staged.

        Args:
            entered_columns: called with each that is an object no more.
        """
        if len(self._came) > 2 * len(self._live) + MOVED_AT_ONCE:
            self._came = deque(job for job in self._came if job in self._live)
        sparse = next((columns for columns in self.in_columns if columns.sparse), None)
        if sparse is not None:
            sparse.shrink()
        if not self.crowded:
            return
        rows: list[tuple[Any, ...]] = []
        texts: dict[int, str] = {}
        last = self.in_columns[-1].columns.ids[-1] if self.in_columns else 0
        for _ in range(min(MOVED_AT_ONCE, len(self._came))):
            job = self._live.get(self._came.popleft())
            if job is None or job.id <= last or not job.only_waits:
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
        known = self.in_columns[-1] if self.in_columns else None
        columns = known if known is not None and not known.columns.full else PendingJobs(PendingColumns())
        refused = set(columns.extend(rows))
        if columns is not known and len(columns):
            if known is not None:
                known.columns.settle()
            self.in_columns.append(columns)
            self._firsts.append(columns.columns.ids[0])
        for row in rows:
            if row[0] not in refused:
                entered_columns(self._live.pop(row[0]))

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
        index = columns.index(job)
        found = self._live[job] = self._made(columns.columns, index)
        self._take(columns, index)
        self._left_columns(found)
        return found

    def __setitem__(self, job: int, value: LiveJob) -> None:
        columns = self._columns_with(job)
        if columns is not None:
            self._take(columns, columns.index(job))
        self._live[job] = value

    def __delitem__(self, job: int) -> None:
        del self._live[job]

    def pop(self, job: int) -> LiveJob | None:
        """Take out one that may have been changed; None when it is not here."""
        return self._live.pop(job, None)

    def __contains__(self, job: object) -> bool:
        return job in self._live or (isinstance(job, int) and self.is_in_columns(job))

    def __len__(self) -> int:
        return len(self._live) + self.count_in_columns

    def __iter__(self) -> Iterator[int]:
        for columns in self.in_columns:
            yield from columns
        yield from self._live

    def values(self) -> Iterator[LiveJob]:
        """All of them, those in columns as copies for reading. Some microseconds for each that is in columns."""
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
                return self._made(columns.columns, columns.index(job))
        return found

    def is_in_columns(self, job: int) -> bool:
        """Whether it is in the columns: it waits, and nothing has happened to it."""
        return self._columns_with(job) is not None

    @property
    def count_in_columns(self) -> int:
        """How many are in columns."""
        return sum(map(len, self.in_columns))

    def objects(self) -> Collection[LiveJob]:
        """The jobs that are objects."""
        return self._live.values()

    def in_queues(self, queues: Collection[str]) -> list[int]:
        """Ids of jobs in one of these queues, ascending."""
        found = [job.id for job in self._live.values() if job.queue in queues]
        for columns in self.in_columns:
            found.extend(columns.in_queues(queues))
        return sorted(found)

    def matching(self, wanted: JobFilter) -> Work[list[int]]:
        """Ids of jobs that match everything that the filter sets, ascending: of its states, a task is in one of them.
        O(jobs), in slices: none may come or go meanwhile."""
        jobs = list(self._live.values())
        found: list[int] = []
        for at in range(0, len(jobs), CHEAP_A_SLICE):
            found.extend(job.id for job in jobs[at : at + CHEAP_A_SLICE] if _matches(job, wanted))
            yield
        for columns in list(self.in_columns):
            found.extend(columns.matching(wanted))
            yield
        return sorted(found)

    def owners_in_columns(self) -> list[tuple[Owner, int]]:
        """Whose jobs in columns there are, and how many; each is one task that waits."""
        return [found for columns in self.in_columns for found in columns.owners()]

    def queues_in_columns(self) -> list[tuple[str, int, int]]:
        """The queues of jobs in columns, how many each has, and since when the first of them could have started; a
        queue may come more than once."""
        return [found for columns in self.in_columns for found in columns.queues()]

    def times_in_columns(self, unit_ms: int) -> list[tuple[tuple[str, int], int]]:
        """How many jobs in columns could have started since when, by queue and in that unit; a pair may come more than
        once."""
        return [found for columns in self.in_columns for found in columns.times(unit_ms)]

    def _columns_with(self, job: int) -> PendingJobs | None:
        """The columns in which it is."""
        at = bisect_right(self._firsts, job) - 1
        return self.in_columns[at] if at >= 0 and self.in_columns[at].index(job) >= 0 else None

    def _take(self, columns: PendingJobs, index: int) -> None:
        columns.take(index)
        if not len(columns):
            at = self.in_columns.index(columns)
            del self.in_columns[at], self._firsts[at]


def _matches(job: LiveJob, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or any(map(job.counts.of, wanted.states)))
        and (not wanted.user or job.user == wanted.user)
        and (not wanted.queue or job.queue == wanted.queue)
        and (not wanted.name or name_matches(job.name or job.spec.title, wanted.name))
        and (not wanted.account or job.account == wanted.account)
        and all(k in job.spec.labels and (not v or job.spec.labels[k] == v) for k, v in wanted.labels.items())
    )
