"""What must hold of every run, judged by what the machines saw and not by what HAL believes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from hal.core.model import AttemptState, StepId
from hal.planes.tasks.live.node import is_quarantined
from hal.runtime.unix_listener import SERVING_FAULT
from hal.runtime.virtual_world import VirtualWorld
from hal.store import Store
from tests.simulation.machine import Run

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.system import System

UNFLUSHED_S: Final = 3.0
"""How long before a loss of power something may have been committed that it takes back."""


FAULTS: Final = (SERVING_FAULT, "a request met a fault", "something about a node was left out", "met a fault of HAL")
"""Errors of a log that end no process, so that no node can bring one to its end: here they are faults of HAL."""


def check_nobody_was_blamed(world: VirtualWorld, store: Store) -> None:
    """No honest node is in quarantine, however late, old or repeated what it said was; and no fault was passed over."""
    for row in store.load().nodes:
        assert not is_quarantined(row), f"{row.name}: {row.about.closures}"
    faults = [line for line in world.errors if any(fault in line for fault in FAULTS)]
    assert not faults, faults


def check_nothing_ran_twice(runs: Iterable[Run]) -> None:
    """No step was spawned twice, and no two attempts of one task (same rank) ran at the same time, on any node.

    An attempt is over only when everything that it left behind is. A power failure may take back that an attempt was
    made: then one of that number may follow it on the next boot.
    """
    by_task: dict[tuple[int, int, int], list[Run]] = {}
    seen: set[tuple[StepId, int]] = set()
    for run in runs:
        assert (run.step, run.boot) not in seen, f"step {run.step} ran twice"
        seen.add((run.step, run.boot))
        by_task.setdefault((run.step.job, run.step.task, run.step.rank), []).append(run)
    for task, tries in by_task.items():
        tries.sort(key=lambda run: run.begin_s)
        for first, second in pairwise(tries):
            assert first.end_s <= second.begin_s, f"task {task} ran twice at once: {first} and {second}"
            if first.boot == second.boot:
                assert first.step.attempt < second.step.attempt, f"task {task} went back: {first} then {second}"


def check_attempts_follow(runs: Iterable[Run]) -> None:
    """All ranks of one attempt of a gang ended before the next attempt of its task began."""
    attempts: dict[tuple[int, int, int], dict[int, tuple[float, float]]] = {}
    for run in runs:
        spans = attempts.setdefault((run.step.job, run.step.task, run.boot), {})
        begin_s, end_s = spans.get(run.step.attempt, (run.begin_s, run.end_s))
        spans[run.step.attempt] = (min(begin_s, run.begin_s), max(end_s, run.end_s))
    for task, spans in attempts.items():
        for (first, (_, end_s)), (second, (begin_s, _)) in pairwise(sorted(spans.items())):
            assert end_s <= begin_s, f"task {task}: attempt {second} began before attempt {first} had ended everywhere"


def check_no_node_was_oversubscribed(runs: Iterable[Run], cpu_milli: int) -> None:
    """At no instant did the steps of a node together have more cpu than it has."""
    changes: dict[str, list[tuple[float, int]]] = {}
    for run in runs:
        changes.setdefault(run.node, []).extend([(run.begin_s, run.cpu_milli), (run.end_s, -run.cpu_milli)])
    for node, steps in changes.items():
        used = 0
        # What ends at an instant makes room for what begins at it.
        for at_s, change in sorted(steps):
            used += change
            assert used <= cpu_milli, f"node {node} gave {used} of {cpu_milli} millicores at {at_s:.6f} s"


def check_store_equals_what_ran(system: System, ids: Sequence[int]) -> None:
    """Every process belongs to an attempt of the store and ended as that says; attempts without a process say so."""
    store = system.store()
    unseen = {run.step: run for run in sorted(system.runs, key=lambda run: run.begin_s)}
    for job in ids:
        for attempt in store.attempts(job, limit=1_000):
            assert attempt.state.ended, f"{attempt} has not ended although its job has"
            for rank, node in enumerate(attempt.nodes):
                run = unseen.pop(StepId(attempt.job, attempt.task, attempt.attempt, rank), None)
                if run is None or run.node != node:
                    assert attempt.state is not AttemptState.SUCCEEDED, f"{attempt} succeeded without a process"
                    continue
                if attempt.state is AttemptState.SUCCEEDED:
                    assert run.status == 0, f"{attempt} succeeded, but its process ended with {run.status}"
                if attempt.state is AttemptState.FAILED and len(attempt.nodes) == 1:
                    assert run.status == attempt.exit_code
    for run in unseen.values():
        assert any(0 <= lost_s - run.begin_s < UNFLUSHED_S for lost_s in system.power_losses_s), (
            f"a process that the store knows nothing of, and no power failure took that back: {run}"
        )
    assert not [state for state, count in store.counts().items() if count and not state.ended], store.counts()


def without_standstill(cluster: Cluster, guarded: Container[int]) -> list[Run]:
    """The runs, each guarded one that a host's standstill outlived cut where that began.

    It does nothing while it stands still; the first second after the thaw is not covered (docs/failures.md), which
    `check_lapsed_steps_end_after_a_thaw` bounds.
    """
    found = []
    for run in cluster.runs:
        for thaw in cluster.thaws:
            lapsed = thaw.node == run.node and thaw.to_s - thaw.from_s > cluster.lapsed_s and run.step.job in guarded
            if lapsed and run.begin_s <= thaw.from_s and run.end_s >= thaw.to_s:
                run = run._replace(end_s=thaw.from_s)
        found.append(run)
    return found


def check_gangs_follow(runs: Iterable[Run]) -> None:
    """All ranks of one attempt ended, on whatever host, before the next attempt of its task began anywhere."""
    attempts: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    for run in runs:
        spans = attempts.setdefault((run.step.job, run.step.task), {})
        begin_s, end_s = spans.get(run.step.attempt, (run.begin_s, run.end_s))
        spans[run.step.attempt] = (min(begin_s, run.begin_s), max(end_s, run.end_s))
    for task, spans in attempts.items():
        for (first, (_, end_s)), (second, (begin_s, _)) in pairwise(sorted(spans.items())):
            assert end_s <= begin_s, f"task {task}: attempt {second} began before attempt {first} had ended everywhere"


def check_lapsed_steps_end_after_a_thaw(cluster: Cluster, guarded: Container[int]) -> None:
    """Guarded steps of a host that stood still for longer than its lease are gone a second after it goes on."""
    for thaw in cluster.thaws:
        if thaw.to_s - thaw.from_s <= cluster.lapsed_s:
            continue
        for run in cluster.machines[thaw.node].runs:
            if run.step.job in guarded and run.begin_s < thaw.from_s and run.end_s > thaw.to_s:
                late_s = run.end_s - thaw.to_s
                assert late_s <= 1.0, f"{run} went on for {late_s:.3f} s after {thaw}"
