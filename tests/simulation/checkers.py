"""What must hold of every run, judged by what the machines saw and not by what HAL believes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hal.core.model import StepId
from tests.simulation.machine import Run


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
