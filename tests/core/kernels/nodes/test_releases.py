"""What the first waiting job is promised on a big cluster, from kept instants, is what all releases say."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    JobsCancelled,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    SubmitRows,
    submit_rows,
    update_rows,
)
from hal.core.engine.rules.interning import intern_classes
from hal.core.engine.views import pending, reservations, reserved_rows, rows_of_run, running
from hal.core.kernels.nodes.releases import FEW_NODES, WALK, kept_line, project_release, ready_line
from hal.core.kernels.nodes.rows import recount
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain

NODES, CORES = 2 * FEW_NODES, 8
SMALL = (ClassSpec({"cpu": 1}), ClassSpec({"cpu": 2}), ClassSpec({"cpu": 3}, nodes=2))
OWNERS = (OwnerSpec(),)
HEAD = 1_000_000


@pytest.mark.parametrize("gang", [1, 5, 100])
@pytest.mark.parametrize("seed", range(3))
def test_the_promise_is_that_of_all_releases(gang: int, seed: int) -> None:
    """Attempts end, are edited and start ahead of a gang of whole nodes: each pass promises it the rows of the formula.

    The formula: the first instant at which enough rows are whole, and of the rows that are whole then the latest ones.
    """
    draw = np.random.default_rng(seed)
    state = new_state()
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": CORES}) for k in range(NODES))))
    submit(state, small_jobs(1, 6 * NODES, draw))
    go(state, 0)
    apply(state, JobsCancelled(np.unique(pending(state)["job"])))
    head = submit_rows(1)
    head["job"] = HEAD
    apply(state, JobsSubmitted(head, (ClassSpec({"cpu": CORES}, nodes=gang),), OWNERS))
    go(state, 0)
    assert int(state.meta[L.M_PIECES]) > WALK
    for step in range(1, 30):
        now = 1_000 * step
        rows = running(state)
        gone = draw.choice(len(rows), 3, replace=False)
        ends = np.zeros(3, END)
        ends["job"], ends["task"], ends["attempt"] = (rows[gone][name] for name in ("job", "task", "attempt"))
        apply(state, AttemptsEnded(ends))
        edited = update_rows(1)
        edited["job"] = running(state)["job"][int(draw.integers(0, len(rows) - 3))]
        edited["walltime_ms"] = 17 * int(draw.integers(1, 60_000))
        apply(state, JobsUpdated(edited))
        if step % 3 == 0:
            few = small_jobs(HEAD + 10 * step, 3, draw)
            few["class_index"] = 0  # one core each: as many as came free at least, so that all start ahead of the gang
            submit(state, few)
        go(state, now)
        if HEAD in running(state)["job"]:
            break
        promise = reservations(state)[0]
        start_ms, promised = formula(state, gang, now)
        assert (int(promise["job"]), int(promise["start_ms"])) == (HEAD, start_ms)
        assert sorted(reserved_rows(state).tolist()) == sorted(promised)
        extra = state.work.reserved[: len(promised), L.Q_EXTRA]
        assert extra.tolist() == [0] * gang
    assert gang < 100 or state.ticks[L.TICK_READY] == 1
    check_invariants(state)


@pytest.mark.parametrize("seed", range(3))
def test_the_promise_in_one_rack_is_that_of_its_releases(seed: int) -> None:
    """As above, of five whole nodes of one rack: the first instant at which some rack has as many."""
    draw = np.random.default_rng(seed)
    state = new_state(EngineConfig(levels=("rack",)))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": CORES}, domains=(f"r{k % 7}",)) for k in range(NODES))))
    submit(state, small_jobs(1, 6 * NODES, draw))
    go(state, 0)
    apply(state, JobsCancelled(np.unique(pending(state)["job"])))
    head = submit_rows(1)
    head["job"] = HEAD
    apply(state, JobsSubmitted(head, (ClassSpec({"cpu": CORES}, nodes=5, within="rack"),), OWNERS))
    go(state, 0)
    for now in (1_000, 2_000, 3_000):
        row = running(state)[int(draw.integers(0, 100))]
        end = np.zeros(1, END)
        end["job"], end["task"], end["attempt"] = row["job"], row["task"], row["attempt"]
        apply(state, AttemptsEnded(end))
        go(state, now)
        whole = np.full(NODES, now)
        for run in running(state):
            for node in rows_of_run(state, int(run["run"])):
                whole[node] = max(whole[node], int(run["end_ms"]), now + 1)
        by_rack: dict[str, list[int]] = {}
        for node, at in enumerate(whole):
            by_rack.setdefault(f"r{int(state.node_name(node)[1:]) % 7}", []).append(int(at))
        (promise,) = (one for one in reservations(state) if one["job"] == HEAD)
        assert int(promise["start_ms"]) == min(sorted(ends)[4] for ends in by_rack.values())
        assert len({int(state.node_name(node)[1:]) % 7 for node in reserved_rows(state).tolist()}) == 1
    check_invariants(state)


def small_jobs(first: int, count: int, draw: np.random.Generator) -> SubmitRows:
    rows = submit_rows(count)
    rows["job"] = np.arange(first, first + count)
    rows["class_index"] = draw.integers(0, len(SMALL), count)
    rows["walltime_ms"] = 17 * draw.integers(1, 60_000, count)
    rows["priority"] = 10
    return rows


def submit(state: State, rows: SubmitRows) -> None:
    apply(state, JobsSubmitted(rows, SMALL, OWNERS))


def go(state: State, now: int) -> None:
    """One pass, assumed."""
    plan = cycle(state, now)
    assert plan.cursor is None
    if plan.changes:
        apply(state, PlanAssumed(plan))


def formula(state: State, gang: int, now: int) -> tuple[int, list[int]]:
    """When enough rows are whole, and which of them are promised."""
    whole = np.full(NODES, now)
    for run in running(state):
        for row in rows_of_run(state, int(run["run"])):
            whole[row] = max(whole[row], int(run["end_ms"]), now + 1)
    latest = sorted(((int(at), row) for row, at in enumerate(whole)))
    start_ms = latest[gang - 1][0]
    there = [row for at, row in latest if now < at <= start_ms][::-1][:gang]
    free = [row for at, row in latest if at == now][::-1]
    return start_ms, there + free[: gang - len(there)]


def test_releases_add_up_on_a_node_and_the_second_makes_room() -> None:
    """Two full nodes give back one cpu each, twice; what waits for two may have the first node, and not the other."""
    state = new_state()
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 4}, {"pool": pool}) for k, pool in enumerate("ab"))))
    kinds = ClassSpec({"cpu": 2}, 1, (Requirement("pool", Match.IN, ("a",)),)), ClassSpec({"cpu": 1})
    waits, given = (int(state.catalogue.classes[one, L.C_SHAPE]) for one in intern_classes(state, kinds))
    t = state.tables()
    t.free[:2] = 0
    stamp = int(t.rows[:2, L.N_STAMP].max()) + 1
    for node, room in ((0, [False, True, False]), (1, [False, False, False])):
        assert [plain(project_release)(t, waits, node, given, stamp) for _ in range(3)] == room
        assert t.projected[node, 0] == 3
    assert plain(project_release)(t, waits, 1, given, stamp + 1) is False
    assert t.projected[1, 0] == 1


def test_a_shape_that_is_counted_again_loses_its_kept_instants_and_no_other_does() -> None:
    """Of three shapes with a line each the second is counted again."""
    state = new_state()
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4}),)))
    shapes = [int(state.catalogue.classes[one, L.C_SHAPE]) for one in intern_classes(state, SMALL)]
    t = state.tables()
    for line, shape in enumerate(shapes):
        state.ticks[L.TICK] = 1 + line
        assert plain(ready_line)(t, shape) == line  # that which was asked for least lately
    recount(state.at, shapes[1], shapes[1] + 1)
    assert [plain(kept_line)(t, shape) for shape in shapes] == [0, -1, 2]


def test_more_shapes_than_are_compared_at_once_are_counted() -> None:
    """70 kinds of jobs, of one to 70 cpus, on a node of 80: twelve start, and all counts hold."""
    kinds = tuple(ClassSpec({"cpu": cpu, "memory": 1}) for cpu in range(1, L.SHAPES_AT_ONCE + 7))
    state = new_state()
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 80, "memory": 80}),)))
    rows = submit_rows(len(kinds))
    rows["job"] = np.arange(1, len(kinds) + 1)
    rows["class_index"] = np.arange(len(kinds))
    apply(state, JobsSubmitted(rows, kinds))
    go(state, 0)
    assert running(state)["job"].tolist() == list(range(1, 13))  # 1 + … + 12 = 78
    check_invariants(state)


def test_a_node_with_more_attempts_than_are_sorted_ends_the_kept_instants_of_its_shape() -> None:
    """A line is kept, then one of its nodes is full with more attempts than scratch holds: nothing is known of it."""
    state = new_state()
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4}),)))
    shape = int(state.catalogue.classes[intern_classes(state, SMALL)[0], L.C_SHAPE])
    t = state.tables()
    assert plain(ready_line)(t, shape) == 0
    t.free[0] = 0
    t.rows[0, L.N_PIECES] = t.scratch[L.SCRATCH_ENDS].shape[0] + 1
    t.rows[0, L.N_UNREADY] = 1
    t.unready[0] = 0
    t.ticks[L.TICK_UNREADY] = 1
    assert plain(ready_line)(t, shape) == -1
    assert plain(kept_line)(t, shape) == -1
