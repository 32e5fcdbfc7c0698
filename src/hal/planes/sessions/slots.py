"""A slot of a session as its broker sees it: one worker, and what it was sent. Pure."""

from __future__ import annotations

from hal.planes.sessions.blocks import Block, Run
from hal.planes.sessions.pools import Pool
from hal.planes.sessions.submitters import Outbox
from hal.wire.frames.sessions import MoveSlot, TaskStatus


class Slot:
    """One worker.

    Attributes:
        number: unique in the session.
        pool: of the slots of its shape.
        own: tasks whose key binds them to it.
        keys: how many of these keys there are.
        keyed_turn: what was sent last had no key.
        worker: the number of the first slot of its process, which may have several: one for each of its threads.
        name: of the worker, for people.
        leaving: it gets nothing more.
        moves: where it is sent, if it leaves for another broker of the session.
        runs: what it has, in the order in which it runs them.
        expected_us: how long all of that is expected to take.
        known: objects that it was sent.
        death: how its worker ended, where that is known before it is gone.
        mourned: once it is lost, tasks that are answered when it is known how it ended, with status and text.
        excused: its worker ends for a reason that is none of its tasks.
        heard_ms: when it last reported a result, or was sent something while it had nothing.
        late: it has returned tasks because it was late, and has reported nothing since: it is sent nothing.
        recalling: it was asked to return what it has not begun, and has not answered.
        since_ms: when it came.
        task: of the session's job, that it is.
        tasks_done: since it came.
    """

    __slots__ = (
        "busy_us",
        "death",
        "excused",
        "expected_us",
        "heard_ms",
        "keyed_turn",
        "keys",
        "known",
        "late",
        "leaving",
        "mourned",
        "moves",
        "name",
        "number",
        "outbox",
        "own",
        "pool",
        "recalling",
        "runs",
        "since_ms",
        "task",
        "tasks_done",
        "worker",
    )

    def __init__(
        self, number: int, name: str, outbox: Outbox, task: int = 0, pool: Pool | None = None, worker: int = 0
    ) -> None:
        self.number = number
        self.pool = pool or Pool()
        self.own = Pool(self.pool.shape, self)
        self.keys = 0
        self.keyed_turn = True
        self.worker = worker or number
        self.name = name
        self.task = task
        self.since_ms = 0
        self.outbox = outbox
        self.runs: dict[int, Run] = {}
        self.expected_us = 0.0
        self.known: set[int] = set()
        self.heard_ms = 0
        self.recalling = False
        self.excused = False
        self.late = False
        self.leaving = False
        self.moves: MoveSlot | None = None
        self.tasks_done = 0
        self.busy_us = 0
        self.death: str | None = None
        self.mourned: list[tuple[Block, int, TaskStatus, str]] = []

    @property
    def held_tasks(self) -> int:
        """Tasks that it has not reported, without those that wait for others."""
        return sum(run.end - run.start - run.done for run in self.runs.values() if not run.waits)

    @property
    def idle(self) -> bool:
        """It has nothing to run."""
        return all(run.waits for run in self.runs.values())
