"""Claims: the first job in line behind work without a limit gets the rows that come free, after a while."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import INF, NodeSpec
from hal.core.engine.views import reservations
from hal.core.kernels.structures.layout import KIND_CLAIM
from tests.core.engine.clusters import ended, engine, job, places

A, B = NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4})


@pytest.mark.parametrize("backfill", list(Backfill))
def test_the_first_in_line_claims_rows_after_claim_after(backfill: Backfill) -> None:
    """Two nodes run work without a limit; a gang of both waits. A row that comes free later is kept for it."""
    state, sink, scheduler = engine(EngineConfig(backfill=backfill, claim_after_ms=10_000), A, B)
    scheduler.feed(job(1, 4))
    scheduler.feed(job(2, 4))
    scheduler.run(0)
    scheduler.feed(job(3, 4, gang=2))
    scheduler.run(0)
    scheduler.run(10_000)
    scheduler.feed(job(4, 4, walltime_ms=1_000))
    scheduler.run(10_001)
    scheduler.feed(ended(1))
    scheduler.run(20_000)
    check_invariants(state)
    assert sink.jobs() == [1, 2], "job 4 took what the first in line had claimed"
    scheduler.feed(ended(2))
    scheduler.run(21_000)
    check_invariants(state)
    assert sink.jobs() == [1, 2, 3]
    assert sorted(places(state)[3]) == ["a", "b"]


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE])
def test_before_claim_after_others_may_use_what_comes_free(backfill: Backfill) -> None:
    """The same, but the row comes free before the time: short work behind it may run there."""
    state, sink, scheduler = engine(EngineConfig(backfill=backfill, claim_after_ms=INF), A, B)
    scheduler.feed(job(1, 4))
    scheduler.feed(job(2, 4))
    scheduler.run(0)
    scheduler.feed(job(3, 4, gang=2))
    scheduler.feed(job(4, 4, walltime_ms=1_000))
    scheduler.run(0)
    scheduler.feed(ended(1))
    scheduler.run(20_000)
    check_invariants(state)
    assert sink.jobs() == [1, 2, 4]


def test_a_claim_is_told_as_one() -> None:
    """Under EASY the reservation of the first in line becomes a claim at claim_after, and the pass wakes for it."""
    state, _sink, scheduler = engine(EngineConfig(claim_after_ms=10_000), A)
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    scheduler.feed(job(2, 4))
    step = scheduler.run(0)
    assert step.wake_ms == 10_000
    assert not np.any(reservations(state)["kind"] == KIND_CLAIM)
    scheduler.run(step.wake_ms)
    assert reservations(state)["kind"].tolist() == [KIND_CLAIM]
