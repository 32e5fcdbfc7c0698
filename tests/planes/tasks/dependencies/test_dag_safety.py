"""Random workflows with random outcomes and restarts end as a plain evaluator, task by task, says they must."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import StepId, TaskState, spec_from_plain
from hal.core.model.policy import Policy
from hal.planes.tasks import Arrival, TaskPlane, check_table
from hal.store import Group, MemoryDatabase, Store
from hal.wire.frames.agent_keeper import ExitCause, StepExit, Usage
from tests.examples import examples
from tests.planes.tasks.pending_model import PendingModel
from tests.planes.tasks.small_plane import BY

MET, WAITING, NEVER = "met", "waiting", "never"
RAN_WELL, RAN_BADLY, CANCELLED, HELD, WAITS = "ran well", "ran badly", "cancelled", "held", "waits"
NODE: Final = "n1"
KINDS = ("after", "afterany", "afterok", "afternotok")


@st.composite
def workflows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Jobs that name earlier ones, each with the exit codes that its tasks will have."""
    jobs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(2, 8))):
        tasks = draw(st.sampled_from([0, 0, 3]))
        entries: list[Any] = []
        alike = [job["name"] for job in jobs if tasks and job["tasks"] == tasks and job["name"] != "solo"]
        named = [job["name"] for job in jobs if job["name"] != "solo"]
        for _ in range(draw(st.integers(0, 3)) if named else 0):
            members = [
                {"job": draw(st.sampled_from(alike)), "kind": "aftercorr"}
                if alike and draw(st.booleans())
                else {"job": draw(st.sampled_from(named)), "kind": draw(st.sampled_from(KINDS))}
                for _ in range(draw(st.sampled_from([1, 1, 2, 3])))
            ]
            entries.append(members[0] if len(members) == 1 else {"any_of": members})
        solo = draw(st.integers(0, 5)) == 0
        if solo:
            entries.append({"kind": "singleton"})
        jobs.append(
            {
                "name": "solo" if solo else f"j{number}",
                "tasks": tasks,
                "dependencies": entries,
                "rule": draw(st.sampled_from(["cancel", "hold", "run"])),
                "limit": draw(st.sampled_from([0, 1, 2])) if tasks else 0,
                "codes": draw(st.lists(st.sampled_from([0, 0, 1]), min_size=3, max_size=3)),
            }
        )
    return jobs


class Evaluator:
    """Every task for itself, in the order of submission: an earlier job is never changed by a later one."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self.jobs = jobs
        self.ends: list[list[str]] = []
        self.place = {job["name"]: at for at, job in enumerate(jobs)}
        for job in jobs:
            self.ends.append([self._task(job, task) for task in range(max(job["tasks"], 1))])

    def _task(self, job: dict[str, Any], task: int) -> str:
        whole = [self._entry(entry, task) for entry in job["dependencies"] if not _by_task(entry)]
        own = [self._entry(entry, task) for entry in job["dependencies"] if _by_task(entry)]
        for standings in (whole, own):
            if NEVER in standings and job["rule"] != "run":
                return CANCELLED if job["rule"] == "cancel" else HELD
        if WAITING in whole or WAITING in own:
            return WAITS
        return RAN_BADLY if job["codes"][task] else RAN_WELL

    def _entry(self, entry: dict[str, Any], task: int) -> str:
        each = [self._one(one, task) for one in entry.get("any_of", [entry])]
        return MET if MET in each else WAITING if WAITING in each else NEVER

    def _one(self, one: dict[str, Any], task: int) -> str:
        if one["kind"] == "singleton":
            earlier = [ends for job, ends in zip(self.jobs, self.ends, strict=False) if job["name"] == "solo"]
            return WAITING if any(set(ends) & {HELD, WAITS} for ends in earlier) else MET
        ends = self.ends[self.place[one["job"]]]
        if one["kind"] == "aftercorr":
            return {RAN_WELL: MET, RAN_BADLY: NEVER, CANCELLED: NEVER}.get(ends[task], WAITING)
        live, ran = bool(set(ends) & {HELD, WAITS}), bool(set(ends) & {RAN_WELL, RAN_BADLY})
        if one["kind"] == "after":
            return MET if ran or not live else WAITING
        if live:
            return WAITING
        well = set(ends) == {RAN_WELL}
        return MET if one["kind"] == "afterany" or (one["kind"] == "afterok") == well else NEVER


def _by_task(entry: dict[str, Any]) -> bool:
    return any(one["kind"] == "aftercorr" for one in entry.get("any_of", [entry]))


class StoredPlane:
    """A plane over a store in memory, and the plain model of the engine."""

    def __init__(self) -> None:
        self.disk, self.commits, self.now_ms = MemoryDatabase(), 0, 1_000
        self.start()
        self.plane.record_arrival(Arrival(name=NODE, capacity={"cpu": 64_000}, boot_id="b1"), self.now_ms)
        self.commit()

    def start(self) -> None:
        self.store = Store.open(self.disk)
        self.epoch = self.store.take_leadership("test", self.now_ms)
        self.engine = PendingModel()
        self.plane = TaskPlane(Policy(), self.engine)
        for event in self.plane.load(self.store.load(in_columns=True)):
            self.engine.apply(event)

    def restart(self) -> None:
        self.store.close()
        self.start()

    def commit(self) -> None:
        change = self.plane.seal(self.now_ms)
        self.commits += 1
        self.store.commit(Group(f"{self.epoch}-{self.commits}", self.now_ms, change.operations), epoch=self.epoch)
        self.plane.keep()
        for event in change.engine:
            self.engine.apply(event)
        check_table(self.plane._table)
        self.engine.check(self.plane._table)


def run(jobs: list[dict[str, Any]], order: random.Random) -> list[list[str]]:
    """Submit all, start and end tasks in any order with restarts between, until nothing moves; how each task ended."""
    one = StoredPlane()
    specs = [
        spec_from_plain(
            {
                "command": ["x"],
                "name": job["name"],
                "dependencies": job["dependencies"],
                "on_dependency_failed": job["rule"],
                **({"array": {"count": job["tasks"], "max_running": job["limit"]}} if job["tasks"] else {}),
            }
        )
        for job in jobs
    ]
    ids = [job.id for job in one.plane.submit(specs, BY, one.now_ms)]
    one.commit()
    while one.engine.pending or one.engine.running:
        if order.random() < 0.1:
            one.restart()
        ready, running = sorted(one.engine.pending), sorted(one.engine.running)
        if ready and (not running or order.random() < 0.6):
            chosen = sorted(order.sample(ready, order.randint(1, min(3, len(ready)))))
            starts, rows = one.engine.plan(chosen, dict.fromkeys(ids, 1))
            one.engine.assume(starts)
            one.plane.allocate(starts, rows, lambda _: NODE, one.epoch, one.now_ms)
        else:
            exits = []
            for job, task in order.sample(running, order.randint(1, min(3, len(running)))):
                step = StepId(job, task, one.engine.running[(job, task)], 0)
                code = jobs[ids.index(job)]["codes"][task]
                exits.append(
                    StepExit(step, ExitCause.EXITED, code, 0, one.now_ms, one.now_ms, Usage(1, 1, 1, 0, 0), "")
                )
            one.plane.record_exits(NODE, exits, one.now_ms)
        one.commit()
        for job, live in one.plane._table.jobs.items():
            limit = jobs[ids.index(job)]["limit"]
            assert not limit or len(live.active) <= limit
    return [[_WORDS[row.state] for row in one.store.tasks(job)] for job in ids]


_WORDS = {
    TaskState.SUCCEEDED: RAN_WELL,
    TaskState.FAILED: RAN_BADLY,
    TaskState.CANCELLED: CANCELLED,
    TaskState.HELD: HELD,
    TaskState.PENDING: WAITS,
}


def test_a_job_that_is_held_as_a_whole_stays_held_when_its_tasks_could_go() -> None:
    """`after` in a choice that goes by task is met, `afterok` for the whole job is not: held, whatever the order."""
    first = {"name": "j0", "tasks": 3, "dependencies": [], "rule": "cancel", "limit": 0, "codes": [0, 0, 1]}
    choice = {"any_of": [{"job": "j0", "kind": "aftercorr"}, {"job": "j0", "kind": "after"}]}
    second = {**first, "name": "j1", "dependencies": [choice, {"job": "j0", "kind": "afterok"}], "rule": "hold"}
    for seed in range(8):
        assert run([first, second], random.Random(seed))[1] == [HELD, HELD, HELD]


@given(workflows(), st.randoms(use_true_random=False))
@settings(max_examples=examples(25), deadline=None)
def test_safety_a_workflow_ends_as_its_dependencies_say(jobs: list[dict[str, Any]], order: random.Random) -> None:
    """Whatever the order of starts and ends, and wherever the controller starts anew."""
    assert run(jobs, order) == Evaluator(jobs).ends


@pytest.mark.slow
@given(workflows(), st.randoms(use_true_random=False))
@settings(max_examples=examples(50), deadline=None)
def test_safety_many_workflows_end_as_their_dependencies_say(jobs: list[dict[str, Any]], order: random.Random) -> None:
    """The same with more of them."""
    assert run(jobs, order) == Evaluator(jobs).ends
