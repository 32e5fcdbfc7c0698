"""No loop of a kernel is endless: tables that lead round are found out, and no loop has come without a bound."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import hal.core.kernels
from hal.core.engine import State
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import EngineFault
from hal.core.engine.events import JobsCancelled, NodeSpec
from hal.core.engine.scheduler import Scheduler
from hal.core.kernels.structures import layout as L
from tests.core.engine.clusters import ended, engine, job
from tests.core.engine.policy_world import alarm

BOUNDED = {"leads_on", "goes_on", "looks_on"}
COUNTED = {
    "candidates": 1,  # down a heap
    "chains": 4,
    "compact_nodes": 4,  # over levels, over places of a list
    "cold_timelines": 2,  # down a list
    "conservative": 2,  # as long as tasks of an array start, over reservations
    "head_reservations": 3,  # up to a gang, over nodes, over nodes that came free
    "licences": 3,  # over runs, past what is at one instant
    "node_prices": 2,
    "planned_reservations": 2,  # up and down the reservations of one job
    "placing": 4,  # over groups of rows, over their rows, up to a gang, up a list
    "shares": 1,  # marks what it passes
    "sorting": 12,  # halving, among others
    "treap": 12,  # a path is MAX_DEPTH long
}
"""Loops whose end is seen from the loop itself: they count, halve, or fill a list. Look at each before this changes."""


def test_every_loop_has_a_bound() -> None:
    """A `while` asks one of BOUNDED before each round, or is one of those that count."""
    counted: Counter[str] = Counter()
    for path in Path(hal.core.kernels.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.While):
                calls = {call.func.id for call in ast.walk(node.test) if isinstance(call, ast.Call) and
                         isinstance(call.func, ast.Name)}  # fmt: skip
                counted[path.stem] += not calls & BOUNDED
    assert {name: count for name, count in counted.items() if count} == COUNTED


def bounded_loops() -> Iterator[tuple[str, ast.FunctionDef, ast.While, str]]:
    """Each loop that asks one of BOUNDED: where it is, its function, and the name that counts its rounds."""
    for path in sorted(Path(hal.core.kernels.__file__).parent.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            for loop in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                for call in ast.walk(loop.test) if isinstance(loop, ast.While) else ():
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in BOUNDED:
                        assert isinstance(loop, ast.While)
                        yield f"{path.stem}.{function.name}", function, loop, ast.unparse(call.args[2])


def test_each_bounded_loop_counts_each_round_from_zero() -> None:
    """What it asks with begins at 0 and grows by one in each round, before anything may leave the round out."""
    found = list(bounded_loops())
    assert len(found) > 50
    for where, function, loop, rounds in found:
        assert f"{rounds} = 0" in [ast.unparse(line) for line in ast.walk(function) if isinstance(line, ast.Assign)], (
            where
        )
        assert ast.unparse(loop.body[0]) == f"{rounds} += 1", where
        changes = [line for line in ast.walk(loop) if isinstance(line, ast.AugAssign | ast.Assign)]
        assert sum(ast.unparse(line).startswith(f"{rounds} ") for line in changes) == 1, where


def lead_pieces_round(state: State) -> None:
    """The rows of the running attempt."""
    state.work.pieces[0, L.P_NEXT] = 0


def lead_bucket_round(state: State) -> None:
    """What waits, by rank."""
    top = int(state.meta[L.M_ENTRY_TOP])
    slots = [slot for slot in range(top) if state.work.entries[slot, L.E_WHERE] == L.WHERE_BUCKET]
    state.work.rank[slots, L.T_LEFT] = slots[0]
    state.work.rank[slots, L.T_RIGHT] = slots[0]


def lead_siblings_round(state: State) -> None:
    """The entries of a job."""
    top = int(state.meta[L.M_ENTRY_TOP])
    for slot in range(top):
        state.work.entries[slot, L.E_SIBLING] = slot


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
@pytest.mark.parametrize(
    ("lead_round", "event"),
    [
        (lead_pieces_round, ended(1)),
        (lead_bucket_round, JobsCancelled(np.array([3]))),
        (lead_siblings_round, JobsCancelled(np.array([2]), np.array([1]), np.array([1]))),
    ],
)
def test_tables_that_lead_round_are_a_fault_and_no_endless_loop(
    backfill: Backfill, lead_round: Callable[[State], None], event: object
) -> None:
    """One job runs, two wait; then a chain leads round. The engine says so, and decides nothing more."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), NodeSpec("n", {"cpu": 4}))
    for number in (1, 2, 3):
        scheduler.feed(job(number, 4, tasks=1 if number == 1 else 3, walltime_ms=1_000))
    scheduler.run(0)
    lead_round(state)
    with alarm(), pytest.raises(EngineFault, match="was stopped at its bound"):
        tell_and_run(scheduler, event)
    with pytest.raises(EngineFault, match="rebuild the engine"):
        scheduler.run(2)


def tell_and_run(scheduler: Scheduler, event: object) -> None:
    """One event, and what follows from it."""
    scheduler.feed(event)  # type: ignore[arg-type]
    scheduler.run(1)
