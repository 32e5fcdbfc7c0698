"""Events for the engine, in the order in which they happened; neighbours of one kind become one block.

Pure. A job with several groups of nodes has one task; to the engine each group is one, the first has its number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    ADOPT,
    END,
    INF,
    START,
    SUBMIT,
    UPDATE,
    AllocationsAdopted,
    AttemptsEnded,
    ConfigChanged,
    Event,
    JobsCancelled,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodesOffered,
    NodeSpec,
    StartsRefused,
    SubmitRows,
)
from hal.core.model import JobSpec
from hal.core.model.offer import Offer
from hal.planes.interface import MAX_WITHDRAWN_A_BLOCK
from hal.planes.tasks.engine.interning import Interning
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.pending_jobs import PendingJobs

MAX_ROWS_A_BLOCK = 1_024
"""Most rows of one engine event."""


class EngineFeed:
    """Engine events in the order in which they happened; neighbours of one kind become one block."""

    def __init__(self, interning: Interning) -> None:
        self._interning = interning
        self._events: list[Event] = []
        self._kind = ""
        self._rows: list[tuple[int, ...]] = []
        self._column_rows: list[SubmitRows] = []
        """Rows of jobs in columns, of the block that has begun."""
        self._nodes: dict[str, NodeSpec] = {}
        self._gone: list[str] = []
        self._places: list[str] = []
        """Nodes of the block of adopted attempts."""

    def submit(
        self, job: LiveJob, first: int, count: int, attempt: int, eligible_ms: int, limits: tuple[int, int]
    ) -> None:
        """Tasks begin to wait for resources. `limits`: priority and walltime (the engine's infinity for none)."""
        self._begin("submit")
        request, owner = self._interning.indices(job, first)
        self._rows.append(
            (
                job.id,
                first,
                count,
                attempt,
                request,
                owner,
                limits[0],
                job.submit_ms,
                eligible_ms,
                0,
                limits[1],
                -1,
                job.spec.deadline_ms,
            )
        )
        for group, part in enumerate(job.request.groups, 1):
            row = list(self._rows[-1])
            row[1], row[4] = group, self._interning.class_index(part)
            self._rows.append(tuple(row))

    def submit_pending_jobs(self, in_columns: PendingJobs, class_of: Callable[[JobSpec, str], ClassSpec]) -> None:
        """These jobs in columns begin to wait for resources.

        Args:
            class_of: what a spec asks for in a queue.
        """
        self._begin("submit")
        known = self._interning
        self._column_rows.append(
            in_columns.submitted(
                lambda spec, queue: known.class_index(class_of(spec, queue)),
                lambda owner: known.owner_index(known.owner_of(owner)),
            )
        )

    def withdraw(self, job: LiveJob, first: int, count: int) -> None:
        """Waiting tasks leave the engine."""
        self._begin("withdraw")
        self._rows.append((job.id, first, count + len(job.request.groups)))

    def end(self, job: LiveJob, task: int, attempt: int, requeue: bool, eligible_ms: int, ended_ms: int) -> None:
        """An attempt has ended; with `requeue` its task waits again."""
        self._begin("end")
        for group in range(1 + len(job.request.groups)):
            self._rows.append((job.id, task + group, attempt, int(requeue), eligible_ms, 0, ended_ms))

    def adopt(self, job: LiveJob, attempt: Attempt, since_ms: int) -> None:
        """An attempt that the engine did not know holds what its job asks for on its one node, since then."""
        self._begin("adopt")
        request, owner = self._interning.indices(job, attempt.task)
        walltime = INF if job.walltime_ms is None else job.walltime_ms
        index = len(self._rows)
        self._places.append(attempt.nodes[0])
        self._rows.append(
            (
                job.id,
                attempt.task,
                attempt.attempt,
                request,
                owner,
                job.priority,
                job.submit_ms,
                since_ms,
                walltime,
                -1,
                index,
                1,
                0,
                *attempt.engine_state,
            )
        )

    def refuse(self, job: LiveJob, task: int, attempt: int) -> None:
        """A start that was assumed does not happen: its task waits again, at the same place."""
        self._begin("refuse")
        for group in range(1 + len(job.request.groups)):
            self._rows.append((job.id, task + group, attempt, 0, 0, -1))

    def update(self, job: int, priority: int, walltime_ms: int) -> None:
        """New limits of waiting tasks and running attempts."""
        self._begin("update")
        self._rows.append((job, priority, walltime_ms, -1))

    def node(self, node: NodeSpec) -> None:
        """A node came or changed."""
        self._begin("node")
        self._nodes[node.name] = node

    def config(self, config: EngineConfig) -> None:
        """Another policy holds."""
        self._begin("")
        self._events.append(ConfigChanged(config))

    def offered(self, offers: tuple[Offer, ...]) -> None:
        """Other machines could be rented."""
        self._begin("")
        self._events.append(NodesOffered(offers))

    def gone(self, node: str) -> None:
        """A node that the engine knows left for good: what only it could hold is impossible now."""
        self._begin("gone")
        self._gone.append(node)

    def take(self) -> list[Event]:
        """All blocks, in order."""
        self._begin("")
        events, self._events = self._events, []
        self._interning.fresh()
        return events

    def _begin(self, kind: str) -> None:
        most = MAX_WITHDRAWN_A_BLOCK if kind == "withdraw" else MAX_ROWS_A_BLOCK
        if kind == self._kind and len(self._rows) < most:
            return
        rows, before = self._rows, self._kind
        self._rows, self._kind = [], kind
        if before == "submit":
            for block in _in_order(rows, self._column_rows):
                self._events.append(JobsSubmitted(block, self._interning.classes, self._interning.owners))
            self._column_rows = []
        elif before == "withdraw":
            columns = np.array(rows, np.int64)
            self._events.append(JobsCancelled(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()))
        elif before == "end":
            self._events.append(AttemptsEnded(np.array(rows, END)))
        elif before == "adopt":
            names = tuple(dict.fromkeys(self._places))
            index = np.array([names.index(name) for name in self._places], np.int64)
            self._events.append(
                AllocationsAdopted(np.array(rows, ADOPT), index, names, self._interning.classes, self._interning.owners)
            )
            self._places = []
        elif before == "refuse":
            self._events.append(StartsRefused(np.array(rows, START)))
        elif before == "update":
            self._events.append(JobsUpdated(np.array(rows, UPDATE)))
        elif before == "node":
            self._events.append(NodesChanged(tuple(self._nodes.values())))
            self._nodes = {}
        elif before == "gone":
            self._events.append(NodesChanged(removed=tuple(self._gone)))
            self._gone = []


def _in_order(rows: list[tuple[int, ...]], in_columns: list[SubmitRows]) -> list[SubmitRows]:
    """Blocks of rows by job and task: those of jobs in columns, which ascend, and the listed ones between them."""
    listed = np.array(sorted(rows), SUBMIT)
    blocks: list[SubmitRows] = []
    for block in in_columns:
        before, listed = np.split(listed, [np.searchsorted(listed["job"], block["job"][-1])])
        both = np.concatenate((before, block)) if len(before) else block
        blocks.append(both[np.argsort(both["job"], kind="stable")] if len(before) else block)
    return [*blocks, listed] if len(listed) or not blocks else blocks
