"""Licences, asked rule by rule: what is free now and later, what is promised, and who is told when some come back."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np
import pytest

from hal.core.engine import apply, new_state
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    ADOPT,
    INF,
    AllocationsAdopted,
    ClockAdvanced,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.rules.interning import intern_classes
from hal.core.kernels.nodes.wants import share_licences, take_licences
from hal.core.kernels.rules.licences import (
    give_licences,
    licence_shadow,
    licence_start,
    licences_now,
    licences_reserved,
    licences_there,
    note_reserved,
    use_extra,
    waits_apart,
    waits_for_late,
)
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.model.policy import Policy
from tests.examples import examples

TOTALS: Final = {"a": 5, "b": 2}
WANTS: Final[tuple[dict[str, int], ...]] = ({"a": 1}, {"a": 2}, {"b": 1}, {"a": 3, "b": 1}, {"b": 2}, {})
NOW, LAST = 10, 40
"""Everything that is planned ends before LAST, or never."""


class Holders:
    """Attempts that hold licences, starts of this slice, and reservations; and the same as plain lists."""

    def __init__(self, seed: int, backfill: Backfill = Backfill.CONSERVATIVE, most: int = 4) -> None:
        self.r = r = Random(seed)
        self.state = state = new_state(EngineConfig(backfill=backfill, order="fcfs", policy=Policy(licences=TOTALS)))
        apply(state, NodesChanged((NodeSpec("n", {"cpu": 99}),)))
        apply(state, ClockAdvanced(NOW))
        self.kinds = tuple(ClassSpec({"cpu": 1}, licences=dict(wants)) for wants in WANTS)
        self.classes = [int(one) for one in intern_classes(state, self.kinds)]
        self.shapes = [int(state.catalogue.classes[one, L.C_SHAPE]) for one in self.classes]
        self.held: list[tuple[int, dict[str, int]]] = []
        """Until when, and what."""
        self.promised: list[tuple[int, int, dict[str, int]]] = []
        """From when, until when, and what; claims hold always."""
        for job in range(1, 1 + r.randint(0, most)):
            kind = r.randrange(len(WANTS))
            if self.has_room(WANTS[kind]):
                self.adopt(job, kind, r.choice((NOW - 2, NOW, NOW + 1, NOW + 5, NOW + 5, NOW + 20, INF)))
        self.own_starts()

    def has_room(self, wants: dict[str, int]) -> bool:
        used = {name: sum(held.get(name, 0) for _end, held in self.held) for name in TOTALS}
        return all(used[name] + wants.get(name, 0) <= TOTALS[name] for name in TOTALS)

    def adopt(self, job: int, kind: int, end: int) -> None:
        wall = INF if end >= INF else end - 1
        row = (job, 0, 1, kind, 0, 0, 1, 1, wall, -1, 0, 1, 0, 0, 0, 0)
        apply(self.state, AllocationsAdopted(np.array([row], ADOPT), np.array([0]), ("n",), self.kinds))
        self.held.append((max(end, NOW + 1), WANTS[kind]))

    def own_starts(self) -> None:
        """Up to two tasks of a waiting job start in this slice."""
        state, r = self.state, self.r
        kind, lasts = r.randrange(len(WANTS)), r.choice((3, 9, INF))
        rows = submit_rows(1)
        rows["job"], rows["class_index"], rows["walltime_ms"], rows["tasks"] = 99, kind, lasts, 9
        apply(state, JobsSubmitted(rows, self.kinds))
        t = state.tables()
        state.pass_record[[L.PASS_NOW, L.PASS_FIRST_START, L.PASS_STARTS]] = NOW, 3, 0
        state.ticks[L.TICK] += 1
        (entry,) = np.flatnonzero(state.work.entries[:, L.E_JOB] == 99)[:1]
        for k in range(r.randint(0, 2)):
            if self.has_room(WANTS[kind]):
                t.starts[3 + k, L.START_ENTRY] = entry
                state.pass_record[L.PASS_STARTS] += 1
                plain(take_licences)(t, self.shapes[kind], 1)
                self.held.append((min(NOW + lasts, INF), WANTS[kind]))

    def reserve(self, count: int) -> None:
        """Reservations, some of which do not count."""
        r, planned = self.r, self.state.scratch.planned
        for k in range(count):
            kind, begin, lasts = r.randrange(len(WANTS)), NOW + r.randint(1, 12), r.choice((1, 4, 8))
            what = r.choice((L.KIND_RESERVED, L.KIND_RESERVED, L.KIND_CLAIM, L.KIND_NEVER))
            entry, counts = r.choice((0, 0, 0, -1)), r.choice((1, 1, 1, 0))
            planned[k, [L.V_ENTRY, L.V_CLASS, L.V_KIND]] = entry, self.classes[kind], what
            planned[k, [L.V_HELD, L.V_START, L.V_PLANNED]] = counts, begin, lasts
            from_ms, until = {L.KIND_RESERVED: (begin, begin + lasts), L.KIND_CLAIM: (0, INF)}.get(what, (0, 0))
            self.promised.append((from_ms, until if entry >= 0 and counts else 0, WANTS[kind]))

    def left(self, name: str, at: int, mine: int = -1) -> int:
        """What is free of a licence at an instant, beside all reservations but one."""
        held = sum(what.get(name, 0) for end, what in self.held if end > at)
        promised = [
            what.get(name, 0) for k, (since, end, what) in enumerate(self.promised) if since <= at < end and k != mine
        ]
        return TOTALS[name] - held - sum(promised)

    def earliest(self, kind: int, since: int, lasts: int, mine: int) -> int:
        """Instant by instant."""
        for at in range(since, LAST + 1):
            until = LAST + 1 if lasts >= INF else at + lasts
            needed = [(name, asked) for name, asked in WANTS[kind].items() if asked]
            if all(self.left(name, u, mine) >= asked for name, asked in needed for u in range(at, max(until, at + 1))):
                return at
        return INF


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_a_start_is_at_the_first_instant_from_which_all_its_licences_stay_free(first: int) -> None:
    for seed in range(first, first + examples(30)):
        world = Holders(seed)
        world.reserve(world.r.randint(0, 3))
        count = len(world.promised)
        for kind, shape in enumerate(world.shapes):
            for mine, since, lasts in ((-1, NOW, 1), (-1, NOW + 3, 6), (0, NOW, 6), (count - 1, NOW, INF)):
                found = plain(licence_start)(world.state.tables(), count, mine, shape, since, lasts, lasts)
                assert found == world.earliest(kind, since, lasts, mine), f"seed {seed}: {WANTS[kind]} {lasts} {mine}"


@pytest.mark.parametrize("first", range(0, 60, 30))
def test_what_is_free_now_and_what_comes_back_is_counted(first: int) -> None:
    for seed in range(first, first + examples(30)):
        world = Holders(seed)
        t = world.state.tables()
        for kind, shape in enumerate(world.shapes):
            free = all(world.left(name, NOW) >= asked for name, asked in WANTS[kind].items())
            assert plain(licences_now)(t, shape) == free, f"seed {seed}"
            assert plain(licences_there)(t, shape, 5) == free
            shadow = world.earliest(kind, NOW, 1, -1)
            assert plain(licence_shadow)(t, shape, 1, 1) == (shadow if shadow < INF else -1), f"seed {seed}"


@pytest.mark.parametrize("first", range(0, 60, 30))
def test_others_may_use_what_is_promised_until_then_and_what_is_left_beside_it(first: int) -> None:
    """One reservation wants licences, as EASY has it; a start of each kind is asked about for some ends."""
    for seed in range(first, first + examples(30)):
        world = Holders(seed, Backfill.EASY)
        world.reserve(1)
        state, t = world.state, world.state.tables()
        state.counts[L.COUNT_RESERVATIONS] = 1
        plain(note_reserved)(t)
        entry, kind = int(state.scratch.planned[0, L.V_ENTRY]), int(state.scratch.planned[0, L.V_KIND])
        at = int(state.scratch.planned[0, L.V_START]) if kind == L.KIND_RESERVED else NOW - 1
        wanted = world.promised[0][2] if entry >= 0 and kind != L.KIND_NEVER else {}
        world.promised = []
        beside = {name: max(world.left(name, max(at, NOW)) - asked, 0) for name, asked in wanted.items()}
        if kind == L.KIND_CLAIM:  # nothing that comes back is counted on
            used = {name: sum(what.get(name, 0) for _end, what in world.held) for name in TOTALS}
            beside = {name: max(TOTALS[name] - used[name] - asked, 0) for name, asked in wanted.items()}
        for other, shape in enumerate(world.shapes):
            for end in (NOW + 1, at, at + 1, INF):
                expected = any(end > at and asked > beside.get(name, INF) for name, asked in WANTS[other].items())
                assert plain(licences_reserved)(t, shape, end) == expected, f"seed {seed}: {WANTS[other]} until {end}"
        before = t.licence_counts[:, L.LICENCE_EXTRA].copy()
        plain(use_extra)(t, world.shapes[3], at)
        assert (t.licence_counts[:, L.LICENCE_EXTRA] == before).all()
        plain(use_extra)(t, world.shapes[3], INF)
        less = before - t.licence_counts[:, L.LICENCE_EXTRA]
        assert sorted(less.tolist(), reverse=True)[:2] == sorted(
            (WANTS[3][name] if name in wanted else 0 for name in TOTALS), reverse=True
        )


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
@pytest.mark.parametrize(("gave", "woken"), [(0, {0, 1, 3}), (2, {2, 3, 4}), (3, {0, 1, 2, 3, 4}), (5, set())])
def test_who_wants_what_came_back_is_told(backfill: Backfill, gave: int, woken: set[int]) -> None:
    """Its shape, and its reservation; under conservative all reservations are planned again."""
    world = Holders(0, backfill)
    state, t = world.state, world.state.tables()
    state.catalogue.shapes[:, L.S_WAKE] = 0
    state.meta[[L.M_DIRTY, L.M_WAKE, L.M_EPOCH]] = 0, 0, 77
    state.make_room({})
    state.meta[L.M_RESERVATIONS] = 2
    state.work.reservations[:2, L.V_CLASS] = world.classes[2], world.classes[5]
    state.work.reservations[:2, L.V_DIRTY] = 0
    used = t.licence_counts[:, L.LICENCE_USED].sum()
    plain(give_licences)(t, world.shapes[gave])
    assert {kind for kind, shape in enumerate(world.shapes) if t.shapes[shape, L.S_WAKE] == 77} == woken
    assert state.work.reservations[:2, L.V_DIRTY].tolist() == [int(2 in woken), 0]
    everything = backfill is Backfill.CONSERVATIVE and 2 in woken
    assert state.meta[[L.M_DIRTY, L.M_WAKE]].tolist() == [int(everything), 77 if everything else 0]
    assert used - t.licence_counts[:, L.LICENCE_USED].sum() == sum(WANTS[gave].values())


@pytest.mark.parametrize(("end", "late"), [(NOW - 2, True), (NOW, True), (NOW + 1, False), (INF, False)])
def test_only_work_that_outlives_its_plan_and_holds_a_licence_is_waited_for(end: int, late: bool) -> None:
    world = Holders(0, most=0)
    world.adopt(1, 0, end)
    asked = [plain(waits_for_late)(world.state.tables(), shape, NOW) for shape in world.shapes]
    assert asked == [late, late, False, late, False, False]
    assert [plain(waits_apart)(world.state.tables(), shape) for shape in world.shapes] == [True] * 5 + [False]


def test_two_kinds_of_work_share_what_both_want() -> None:
    world = Holders(0)
    for one, shape in enumerate(world.shapes):
        for other, beside in enumerate(world.shapes):
            shared = bool(WANTS[one].keys() & WANTS[other].keys())
            assert plain(share_licences)(world.state.tables(), shape, beside) == shared
