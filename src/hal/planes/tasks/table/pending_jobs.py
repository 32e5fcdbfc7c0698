"""Jobs that wait and were not touched since they were stored, as the store's columns: no object for each of them.

Pure. What a decision or a listing asks of all of them is answered from columns; a job becomes a `LiveJob` of its own
when it is touched, and leaves its column then. O(log jobs) to find one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.events import INF, SubmitRows, submit_rows
from hal.core.model import JobSpec, TaskState
from hal.core.model.name_patterns import name_matches
from hal.core.model.policy_scope import Owner
from hal.store.pending_columns import PendingColumns
from hal.store.views import JobFilter

Indices = NDArray[np.int64]
"""Shape (K,): indices of jobs in the columns, ascending."""
SPARSE: Final = 4
"""Columns are rebuilt when fewer than one in so many of their jobs are still pending."""
SHRUNK_AT_ONCE: Final = 256
"""Jobs that one call of `shrink` copies, in 1 to 2 ms; the last, which frees what 65,536 took, needs 4 to 8 ms."""
Codes = NDArray[np.int64]
"""Shape (K,): one index for each."""


class PendingJobs:
    """Columns of jobs, and which of them are still here."""

    def __init__(self, columns: PendingColumns) -> None:
        self.columns = columns
        self._here = bytearray(b"\1") * len(columns)
        self._count = len(columns)
        self._anew: PendingColumns | None = None
        """Columns that `shrink` has begun to make."""
        self._copied: list[int] = []
        """Places, ascending, of those that are in them; who has left meanwhile is in them all the same."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Their ids, ascending; one may be taken out meanwhile."""
        for index, job in enumerate(self.columns.ids):
            if self._here[index]:
                yield job

    def extend(self, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Add jobs of higher ids; rows as for `PendingColumns.extend`. Returns the ids of those that were not added."""
        refused = self.columns.extend(rows)
        taken = len(rows) - len(refused)
        self._here.extend(b"\1" * taken)
        self._count += taken
        return refused

    def index(self, job: int) -> int:
        """The index of a job; -1: it is not here."""
        ids = self.columns.ids
        index = bisect_left(ids, job)
        return index if index < len(ids) and ids[index] == job and self._here[index] else -1

    def take(self, index: int) -> None:
        """Remove a job."""
        self._here[index] = 0
        self._count -= 1

    @property
    def sparse(self) -> bool:
        """Whether most of what was here has left, or `shrink` has begun and is not done."""
        return self._anew is not None or SPARSE * self._count < len(self.columns)

    def shrink(self) -> None:
        """Copy some more of those that are here; once all are, the copies are the columns. 4 to 7 µs each."""
        if self._anew is None:
            self._anew = PendingColumns()
        indices = self._indices()
        after = self._copied[-1] + 1 if self._copied else 0
        left = indices[np.searchsorted(indices, after) :]
        some: list[int] = left[:SHRUNK_AT_ONCE].tolist()
        self._anew.extend(self.columns.row(index) for index in some)
        self._copied.extend(some)
        if len(left) > len(some):
            return
        self._here = bytearray(np.frombuffer(self._here, np.uint8)[self._copied].tobytes())
        self.columns = self._anew.settle()
        self._anew, self._copied = None, []

    def owners(self) -> list[tuple[Owner, int]]:
        """Whose jobs they are, and how many."""
        ask, owner = self._asks_and_owners(self._indices())
        codes, counts = np.unique(ask * len(self.columns.owners) + owner, return_counts=True)
        found = []
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            of_ask, of_owner = divmod(int(code), len(self.columns.owners))
            queue, account, user = self.columns.owners[of_owner]
            found.append((Owner(queue, account, user, self.columns.asks[of_ask].qos), int(count)))
        return found

    def queues(self) -> list[tuple[str, int, int]]:
        """Their queues, how many of them each has, and since when the first of those could have started."""
        indices = self._indices()
        names, of_owner = _coded([queue for queue, _, _ in self.columns.owners])
        queue = of_owner[np.frombuffer(self.columns.owner, np.int32)[indices]]
        first_ms = np.full(len(names), INF, np.int64)
        np.minimum.at(first_ms, queue, np.frombuffer(self.columns.eligible_ms, np.int64)[indices])
        counts = np.bincount(queue, minlength=len(names))
        rows = zip(names, counts.tolist(), first_ms.tolist(), strict=True)
        return [(name, count, at_ms) for name, count, at_ms in rows if count]

    def times(self, unit_ms: int) -> list[tuple[tuple[str, int], int]]:
        """How many of them could have started since when, by queue and in that unit."""
        indices, columns = self._indices(), self.columns
        if not indices.size:
            return []
        names, of_owner = _coded([queue for queue, _, _ in columns.owners])
        queue = of_owner[np.frombuffer(columns.owner, np.int32)[indices]]
        submit, eligible = (np.frombuffer(one, np.int64)[indices] for one in (columns.submit_ms, columns.eligible_ms))
        times = np.where(eligible < INF, np.maximum(submit, eligible) // unit_ms, INF)
        rows, counts = np.unique(np.stack((queue, times)), axis=1, return_counts=True)
        found = zip(rows[0].tolist(), rows[1].tolist(), counts.tolist(), strict=True)
        return [((names[at], time), count) for at, time, count in found if time < INF]

    def names(self) -> Iterator[tuple[tuple[str, str], list[int]]]:
        """(user, name) of those that have one, and their ids, ascending; a pair may come more than once."""
        columns = self.columns
        indices = self._indices()
        name = np.frombuffer(columns.name, np.int32)[indices]
        has_one = np.array([bool(one) for one in columns.names], bool)
        indices, name = indices[has_one[name]], name[has_one[name]]
        if not indices.size:
            return
        codes = name.astype(np.int64) * len(columns.owners) + np.frombuffer(columns.owner, np.int32)[indices]
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        ids = np.frombuffer(columns.ids, np.int64)[indices[order]].tolist()
        edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(ids)]
        for begin, end in pairwise(edges):
            which, owner = divmod(int(codes[begin]), len(columns.owners))
            yield (columns.owners[owner][2], columns.names[which]), ids[begin:end]

    def in_queues(self, queues: Collection[str]) -> list[int]:
        """Ids of those in one of these queues."""
        return self._ids(self._where([owner[0] in queues for owner in self.columns.owners]))

    def matching(self, wanted: JobFilter) -> list[int]:
        """Ids of those that match everything that the filter sets."""
        columns = self.columns
        if wanted.states and TaskState.PENDING not in wanted.states:
            return []
        indices = self._where(
            [
                (not wanted.queue or queue == wanted.queue)
                and (not wanted.account or account == wanted.account)
                and (not wanted.user or user == wanted.user)
                for queue, account, user in columns.owners
            ]
        )
        if wanted.name:
            names = np.frombuffer(columns.name, np.int32)[indices]
            same = np.array([bool(name) and name_matches(name, wanted.name) for name in columns.names], bool)[names]
            nameless = np.array([not name for name in columns.names], bool)[names]
            if nameless.any():
                # Those are shown by their programs.
                shapes = np.frombuffer(columns.shape, np.int32)[indices[nameless]]
                like = [one for one in np.unique(shapes).tolist() if name_matches(columns.title(one), wanted.name)]
                same[nameless] = np.isin(shapes, like)
            indices = indices[same]
        if wanted.labels:
            shapes = np.frombuffer(columns.shape, np.int32)[indices]
            alike = [shape for shape in np.unique(shapes).tolist() if _has(columns.spec_of_shape(shape), wanted.labels)]
            indices = indices[np.isin(shapes, alike)]
        return self._ids(indices)

    def packed(self) -> list[int]:
        """Ids of those that wait for one domain for some time."""
        if not any(spec.pack for spec in self.columns.asks):
            return []
        indices = self._indices()
        ask, _owner = self._asks_and_owners(indices)
        return self._ids(indices[np.array([bool(spec.pack) for spec in self.columns.asks])[ask]])

    def submitted(self, class_index: Callable[[JobSpec, str], int], owner_index: Callable[[Owner], int]) -> SubmitRows:
        """All of them as rows of the engine's event, by ascending id.

        Args:
            class_index: of what such a spec asks for in that queue, in the event's classes.
            owner_index: in the event's owners.
        """
        columns, indices = self.columns, self._indices()
        rows = submit_rows(indices.size)
        rows["job"] = np.frombuffer(columns.ids, np.int64)[indices]
        rows["priority"] = np.frombuffer(columns.priority, np.int64)[indices]
        rows["submit_ms"] = np.frombuffer(columns.submit_ms, np.int64)[indices]
        rows["eligible_ms"] = np.frombuffer(columns.eligible_ms, np.int64)[indices]
        walltime = np.frombuffer(columns.walltime_ms, np.int64)[indices]
        rows["walltime_ms"] = np.where(walltime < 0, INF, walltime)
        ask, owner = self._asks_and_owners(indices)
        queues, queue = _coded([queue for queue, _, _ in columns.owners])
        qualities, quality = _coded([spec.qos for spec in columns.asks])
        rows["deadline_ms"] = np.array([spec.deadline_ms for spec in columns.asks], np.int64)[ask]
        rows["class_index"] = _of_each(
            ask * len(queues) + queue[owner],
            lambda code: class_index(columns.asks[code // len(queues)], queues[code % len(queues)]),
        )
        rows["owner_index"] = _of_each(
            owner * len(qualities) + quality[ask],
            lambda code: owner_index(Owner(*columns.owners[code // len(qualities)], qualities[code % len(qualities)])),
        )
        return rows

    def _indices(self) -> Indices:
        indices: Indices = np.flatnonzero(np.frombuffer(self._here, np.uint8))
        return indices

    def _where(self, owners: list[bool]) -> Indices:
        """Places of those whose owner, by index, is wanted."""
        indices = self._indices()
        wanted = np.array(owners, bool)[np.frombuffer(self.columns.owner, np.int32)[indices]]
        found: Indices = indices[wanted]
        return found

    def _ids(self, indices: Indices) -> list[int]:
        ids: list[int] = np.frombuffer(self.columns.ids, np.int64)[indices].tolist()
        return ids

    def _asks_and_owners(self, indices: Indices) -> tuple[Codes, Codes]:
        """Of each: indices of what it asks the engine for, and of whose it is."""
        columns = self.columns
        ask = np.frombuffer(columns.ask, np.int32)[np.frombuffer(columns.shape, np.int32)[indices]]
        return ask.astype(np.int64), np.frombuffer(columns.owner, np.int32)[indices].astype(np.int64)


def _coded(texts: list[str]) -> tuple[list[str], Codes]:
    """The different ones, and of each its index in them."""
    index = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return list(index), np.array([index[text] for text in texts], np.int64)


def _of_each(codes: Codes, answer: Callable[[int], int]) -> Codes:
    """The answer to each code, asked once for each different one."""
    different, where = np.unique(codes, return_inverse=True)
    answers = np.array([answer(code) for code in different.tolist()], np.int64)
    found: Codes = answers[where]
    return found


def _has(spec: JobSpec, labels: dict[str, str]) -> bool:
    return all(label in spec.labels and (not value or spec.labels[label] == value) for label, value in labels.items())
