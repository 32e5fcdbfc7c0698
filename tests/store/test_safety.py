"""Property tests of the store through the real SQLite: random groups, failures and crashes against a plain model.

The model is a dictionary that changes only when `commit` has returned. Whatever happens, the store equals it: rows and
events agree, no half group, sequence numbers without gap or reuse, and commit ids tell the truth.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hal.core.lifecycle import ATTEMPT, AttemptEvent, walk
from hal.core.model import AttemptState, EventKind, TaskState
from hal.store import (
    AppendEvents,
    AttemptEnd,
    AttemptRow,
    EndAttempts,
    Group,
    GroupRefused,
    InsertAttempts,
    JobRow,
    MemoryDatabase,
    Operation,
    ProgressJobs,
    PutTaskRanges,
    StaleEpoch,
    Store,
    TaskRangeRow,
)
from tests.examples import examples
from tests.store.rows import attempt, event, in_rows, job, progress, submitted

RUN_AND = (AttemptEvent.PREPARE, AttemptEvent.START, AttemptEvent.FINALISE)
MAX_TASKS = 40
ROOT = Path(__file__).resolve().parents[2]


class Model:
    """What is durable, in plain Python."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRow] = {}
        self.ranges: dict[int, list[TaskRangeRow]] = {}
        self.attempts: dict[tuple[int, int, int], AttemptRow] = {}
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.commits: set[str] = set()
        self.epoch = 0

    def tasks(self, number: int) -> dict[int, TaskState]:
        """Every task of a job, laid out one by one."""
        found: dict[int, TaskState] = {}
        for (owner, task, _), row in sorted(self.attempts.items()):
            if owner == number:
                found[task] = _TASK_STATE[row.state]
        for task_range in self.ranges[number]:
            found |= dict.fromkeys(range(task_range.first, task_range.first + task_range.count), task_range.state)
        return dict(sorted(found.items()))


_TASK_STATE = {
    AttemptState.ALLOCATED: TaskState.ALLOCATED,
    AttemptState.SUCCEEDED: TaskState.SUCCEEDED,
    AttemptState.FAILED: TaskState.FAILED,
}


class StoreMachine(RuleBasedStateMachine):
    """Submits, starts and ends tasks in random groups, some of which must fail, with crashes between and inside."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="hal-store-")
        self.model = Model()
        self.number = 0
        self.place: Path | MemoryDatabase
        self.store: Store

    @initialize(memory=st.booleans())
    def begins(self, memory: bool) -> None:
        self.place = MemoryDatabase() if memory else Path(self.directory.name) / "hal.sqlite"
        self.opens()

    def opens(self) -> None:
        self.store = Store.open(self.place)
        self.model.epoch = self.store.take_leadership("the machine", 1)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.directory.cleanup()

    def group(self, operations: list[Operation]) -> Group:
        self.number += 1
        return Group(f"c{self.number}", 1_000 + self.number, operations)

    def submission(self, sizes: list[int], model: Model) -> list[Operation]:
        first = max(model.jobs, default=0) + 1
        rows = [job(first + n, tasks=size, version=1) for n, size in enumerate(sizes)]
        for row in rows:
            model.jobs[row.id] = row
            model.ranges[row.id] = [TaskRangeRow(row.id, 0, row.tasks, TaskState.PENDING)]
        model.events.append((EventKind.JOBS_SUBMITTED, tuple(row.id for row in rows)))
        return submitted(*rows)

    def starts(self, pick: int, take: int, model: Model) -> list[Operation]:
        waiting = [
            task_range
            for ranges in model.ranges.values()
            for task_range in ranges
            if task_range.state is TaskState.PENDING
        ]
        if not waiting:
            return []
        task_range = waiting[pick % len(waiting)]
        take = 1 + take % task_range.count
        left = task_range.count - take
        rest = [msgspec.structs.replace(task_range, first=task_range.first + take, count=left)] if left else []
        rows = [
            attempt(task_range.job, task, task_range.attempt, retries=task_range.retries)
            for task in range(task_range.first, task_range.first + take)
        ]
        model.ranges[task_range.job] = sorted([*(s for s in model.ranges[task_range.job] if s != task_range), *rest])
        model.attempts |= {(row.job, row.task, row.attempt): row for row in rows}
        model.events.append((EventKind.ATTEMPTS_ALLOCATED, (task_range.job,)))
        return [
            PutTaskRanges(drop=[(task_range.job, task_range.first)], put=rest),
            InsertAttempts(rows),
            AppendEvents([event(EventKind.ATTEMPTS_ALLOCATED, [task_range.job])]),
        ]

    def ends(self, pick: int, take: int, fails: bool, model: Model) -> list[Operation]:
        active = [row for row in model.attempts.values() if row.state is AttemptState.ALLOCATED]
        if not active:
            return []
        some = active[pick % len(active) :][: 1 + take]
        state = walk(ATTEMPT, AttemptState.ALLOCATED, (*RUN_AND, AttemptEvent.FAIL if fails else AttemptEvent.SUCCEED))
        retried = [
            TaskRangeRow(r.job, r.task, 1, TaskState.PENDING, r.attempt + 1, r.retries + 1, 9) for r in some if fails
        ]
        for row in some:
            end = msgspec.structs.replace(row, state=state, ended_ms=9, cause="exited", exit_code=int(fails))
            model.attempts[row.job, row.task, row.attempt] = end
        for task_range in retried:
            model.ranges[task_range.job] = sorted([*model.ranges[task_range.job], task_range])
        jobs = tuple(sorted({row.job for row in some}))
        touched = [
            msgspec.structs.replace(model.jobs[number], restarts=model.jobs[number].restarts + 1) for number in jobs
        ]
        for changed in touched:
            model.jobs[changed.id] = msgspec.structs.replace(changed, version=changed.version + 1)
        model.events.append((EventKind.ATTEMPTS_ENDED, jobs))
        return [
            EndAttempts([AttemptEnd(r.job, r.task, r.attempt, state, 9, "exited", int(fails)) for r in some]),
            PutTaskRanges(put=retried),
            ProgressJobs([progress(row) for row in touched]),
            AppendEvents([event(EventKind.ATTEMPTS_ENDED, jobs)]),
        ]

    @rule(
        sizes=st.lists(st.integers(1, MAX_TASKS), max_size=4),
        starts=st.lists(st.tuples(st.integers(0, 99), st.integers(0, MAX_TASKS)), max_size=3),
        ends=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.booleans()), max_size=3),
        crash=st.sampled_from(["no", "no", "no", "before", "inside", "after"]),
    )
    def commits_a_group(
        self, sizes: list[int], starts: list[tuple[int, int]], ends: list[tuple[int, int, bool]], crash: str
    ) -> None:
        """One random group; the process may die before, inside or after its commit."""
        after = _copy(self.model)
        operations = self.submission(sizes, after) if sizes else []
        for pick, take in starts:
            operations += self.starts(pick, take, after)
        for pick, take, fails in ends:
            operations += self.ends(pick, take, fails, after)
        group = self.group(operations)
        if crash == "inside":
            # The last operation cannot be done: everything before it must be undone.
            group.add(EndAttempts([AttemptEnd(10**6, 0, 1, AttemptState.LOST, 9)]))
            with pytest.raises(GroupRefused):
                self.store.commit(group, epoch=self.model.epoch)
        elif crash != "before":
            done = self.store.commit(group, epoch=self.model.epoch)
            assert (done.first_seq, done.last_seq) == (len(self.model.events) + 1, len(after.events))
            after.commits.add(group.commit_id)
            self.model = after
        assert self.store.commit_known(group.commit_id) == (group.commit_id in self.model.commits)
        if crash != "no":
            self.store.close()
            self.opens()

    @rule()
    def repeats_the_latest_commit(self) -> None:
        """Sent again, it is not done again."""
        if self.model.commits:
            group = Group(
                f"c{max(int(name[1:]) for name in self.model.commits)}", 1, self.submission([1], _copy(self.model))
            )
            self.store.commit(group, epoch=self.model.epoch)

    @rule()
    def loses_leadership(self) -> None:
        """Another takes over: the former leader's group is refused whole."""
        old = self.model.epoch
        self.model.epoch = self.store.take_leadership("another", 2)
        with pytest.raises(StaleEpoch):
            self.store.commit(self.group(self.submission([3], _copy(self.model))), epoch=old)

    @precondition(lambda self: self.model.jobs)
    @rule(pick=st.integers(0, 99), after=st.none() | st.integers(0, MAX_TASKS), limit=st.integers(1, 50))
    def lists_tasks(self, pick: int, after: int | None, limit: int) -> None:
        """A page of tasks is a slice of the laid-out array."""
        number = 1 + pick % len(self.model.jobs)
        start = 0 if after is None else after + 1
        expected = [(task, state) for task, state in self.model.tasks(number).items() if task >= start][:limit]
        assert [(row.task, row.state) for row in self.store.tasks(number, after=after, limit=limit)] == expected
        states = [TaskState.FAILED, TaskState.ALLOCATED]
        some = [(task, state) for task, state in self.model.tasks(number).items() if task >= start and state in states]
        found = self.store.tasks(number, states, after=after, limit=limit)
        assert [(row.task, row.state) for row in found] == some[:limit]

    @invariant()
    def the_store_is_the_model(self) -> None:
        """Everything that lives, every attempt, every event."""
        if not hasattr(self, "store"):
            return
        model = self.model
        loaded = self.store.load()
        assert loaded.jobs == list(model.jobs.values())
        assert loaded.ranges == {number: ranges for number, ranges in model.ranges.items() if ranges}
        active = [row for key, row in sorted(model.attempts.items()) if row.ended_ms is None]
        assert [row for rows in loaded.attempts.values() for row in rows] == active
        for number in model.jobs:
            rows = [row for key, row in sorted(model.attempts.items()) if key[0] == number]
            assert self.store.attempts(number, limit=10_000) == rows
            # Every task is somewhere, and only once: ranges are disjoint from each other and from active attempts.
            assert list(model.tasks(number)) == list(range(model.jobs[number].tasks))
        events = self.store.events(limit=10_000)
        assert [event.sequence for event in events] == list(range(1, len(model.events) + 1))
        assert [(event.kind, event.jobs) for event in events] == model.events
        assert (loaded.last_seq, loaded.epoch) == (len(model.events), model.epoch)

    @invariant()
    def columns_say_what_rows_say(self) -> None:
        """Every live job comes in one of the two forms, and both agree."""
        if hasattr(self, "store"):
            assert in_rows(self.store.load(in_columns=True)) == in_rows(self.store.load())


def _restarted(row: JobRow) -> JobRow:
    return msgspec.structs.replace(row, restarts=row.restarts + 1)


def _copy(model: Model) -> Model:
    copy = Model()
    copy.jobs = dict(model.jobs)
    copy.ranges = {number: list(ranges) for number, ranges in model.ranges.items()}
    copy.attempts = dict(model.attempts)
    copy.events = list(model.events)
    copy.commits = set(model.commits)
    copy.epoch = model.epoch
    return copy


TestSafetyTheStoreEqualsItsModel = StoreMachine.TestCase
TestSafetyTheStoreEqualsItsModel.settings = settings(max_examples=examples(15), stateful_step_count=12, deadline=None)


@pytest.mark.slow
def test_safety_the_store_equals_its_model_over_long_lives() -> None:
    """The same with more and longer histories."""
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
    )


WRITER = """
import sys
from itertools import count
from hal.core.model import EventKind
from hal.store import AppendEvents, NewEvent, Store
from tests.store.rows import job, submitted
from hal.store import Group

store = Store.open(sys.argv[1])
epoch = store.take_leadership("the writer", 1)
loaded = store.load()
print("ready", flush=True)
for number in count(loaded.last_job_id // 50 + 1):
    rows = [job(n, tasks=n) for n in range((number - 1) * 50 + 1, number * 50 + 1)]
    group = Group(f"g{number}", number, submitted(*rows))
    print(f"begin {number}", flush=True)
    store.commit(group, epoch=epoch)
    print(f"done {number}", flush=True)
"""


def _kill_at_random(path: Path, seed: int, rounds: int) -> None:
    """A writer is killed at a random instant, started again, killed again; after each kill the store is checked."""
    rng = random.Random(seed)
    begun = done = 0
    for _ in range(rounds):
        command = [sys.executable, "-c", WRITER, str(path)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        # The instant is chosen in lines of output, so that it does not depend on how fast this machine is.
        for _ in range(rng.randrange(1, 30)):
            word, number = writer.stdout.readline().split()
            begun, done = (int(number), done) if word == "begin" else (begun, int(number))
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith("\n"):
                word, number = line.split()
                begun, done = (int(number), done) if word == "begin" else (begun, int(number))
        writer.wait()
        writer.stdout.close()
        store = Store.open(path)
        loaded = store.load()
        groups = len(loaded.jobs) // 50
        assert groups in (done, begun)  # all that returned, and at most the one that was being written
        assert [row.id for row in loaded.jobs] == list(range(1, groups * 50 + 1))
        assert {number: ranges[0].count for number, ranges in loaded.ranges.items()} == {n: n for n in loaded.ranges}
        assert len(loaded.ranges) == len(loaded.jobs)
        assert [event.sequence for event in store.events()] == list(range(1, groups + 1))
        assert [store.commit_known(f"g{number}") for number in range(1, begun + 2)] == [
            number <= groups for number in range(1, begun + 2)
        ]
        begun = done = groups
        store.close()


def test_safety_a_killed_writer_leaves_whole_groups_only(tmp_path: Path) -> None:
    """SIGKILL in the middle of committing: rows, events and commit ids agree, and nothing that returned is lost."""
    _kill_at_random(tmp_path / "hal.sqlite", seed=1, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_safety_a_writer_killed_often_leaves_whole_groups_only(tmp_path: Path, seed: int) -> None:
    """The same with more seeds."""
    _kill_at_random(tmp_path / "hal.sqlite", seed=seed, rounds=8)
