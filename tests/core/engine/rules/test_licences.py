"""Licences: never more in use than there are, promised like nodes, and given back to whoever waits first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hal.core.engine import EngineError, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    BookingsChanged,
    ConfigChanged,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.engine.why.explain import explain
from hal.core.model.policy import Policy
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import ended, engine
from tests.examples import examples

MANY = 1 << 20
LAST_MS = 700
TOTALS = {"matlab": 4, "idl": 2}
NODES = tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(3))


def config(backfill: Backfill = Backfill.EASY, **more: Any) -> EngineConfig:
    """With four of one licence and two of another."""
    return EngineConfig(backfill=backfill, policy=Policy(licences=TOTALS), order="fcfs", **more)


class Work(NamedTuple):
    """A job: when it comes, what it asks for, its limit (INF: none), how long it runs."""

    submit: int
    cpu: int
    gang: int
    wants: dict[str, int]
    limit: int
    run: int
    booking: str = ""


works = st.lists(
    st.tuples(
        st.integers(0, 8), st.sampled_from([1, 1, 2, 4]), st.sampled_from([1, 1, 2, 3]),
        st.sampled_from([{}, {"matlab": 1}, {"matlab": 2}, {"matlab": 4}, {"idl": 1}, {"idl": 2, "matlab": 1}]),
        st.sampled_from([1, 3, 7, 15, 40, INF]), st.integers(1, 40),
    ),
    min_size=1,
    max_size=18,
).map(
    lambda rows: [
        Work(sum(gap for gap, *_ in rows[: k + 1]), cpu, gang, wants, limit, min(run, limit))
        for k, (_gap, cpu, gang, wants, limit, run) in enumerate(rows)
    ]
)  # fmt: skip


class World:
    """An engine driven by its own wishes, whose starts and licences are counted apart."""

    def __init__(self, jobs: list[Work], chosen: EngineConfig, booked: Sequence[tuple[BookingSpec, int]] = ()) -> None:
        self.jobs = jobs
        self.booked = booked
        self.ends: dict[int, int] = {}
        self.lasts: dict[int, int] = {}
        self.state = new_state(chosen)
        self.scheduler = Scheduler(self.state, self)
        self.now = 0
        self.starts: list[tuple[int, int, tuple[int, ...]]] = []
        self.scheduler.feed(NodesChanged(NODES))

    def accept(self, plan: Any) -> None:
        """A sink that judges."""
        for start in plan.starts:
            first = int(start["row_offset"])
            rows = tuple(plan.rows[first : first + int(start["row_count"])].tolist())
            job = int(start["job"])
            self.starts.append((job, self.now, rows))
            self.ends[job] = self.now + self.jobs[job].run
            self.judge(job)
        for name, total in TOTALS.items():
            held = [self.jobs[job].wants.get(name, 0) for job, end in self.ends.items() if end > self.now]
            assert sum(held) <= total, f"{sum(held)} of {total} {name} at {self.now}"

    def judge(self, job: int) -> None:
        """What it takes is not set aside for others before its limit, by the limits of all that run."""
        work = self.jobs[job]
        self.lasts[job] = self.now + work.limit
        known = [one.spec for one in self.state.bookings.all]
        mine = [spec for spec in known if work.booking and spec.serves == work.booking and spec.start_ms <= self.now]
        if work.booking:
            whole = work.limit >= mine[0].end_ms - mine[0].start_ms
            assert whole or self.now + work.limit <= mine[0].end_ms, f"{work} outlasts {mine}"
            self.ends[job] = min(self.ends[job], mine[0].end_ms)
            self.lasts[job] = min(self.lasts[job], mine[0].end_ms)  # whatever its limit, it is ended with its booking
        for name, total in TOTALS.items():
            if not work.wants.get(name):
                continue
            inside = any(name in spec.licences for spec in mine)
            alike = [k for k in self.ends if self.takes_of(k, name) == (work.booking if inside else "")]
            for at in (self.now, *(spec.start_ms for spec in known if self.now < spec.start_ms)):
                if at > self.now and (inside or at >= self.lasts[job]):
                    continue
                there = [spec for spec in known if name in spec.licences and spec.start_ms <= at < spec.end_ms]
                aside = sum(spec.licences[name] for spec in there)
                room = sum(spec.licences[name] for spec in there if spec in mine) if inside else total - aside
                held = sum(self.jobs[k].wants[name] for k in alike if self.ends[k] > self.now and self.lasts[k] > at)
                assert held <= room, f"{held} of {room} {name} at {at}, {job} at {self.now}"

    def takes_of(self, job: int, name: str) -> str | None:
        """The booking whose licences it holds, "" for none; None where it holds none of this name."""
        work = self.jobs[job]
        if not work.wants.get(name):
            return None
        booked = any(work.booking == spec.serves and name in spec.licences for spec, _ in self.booked)
        return work.booking if booked else ""

    def run(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Until everything has started, or it is late."""
        wake = 0
        classes = tuple(ClassSpec({"cpu": w.cpu}, w.gang, (), w.booking, w.wants) for w in self.jobs)
        for now in range(LAST_MS):
            self.now = now
            gone = [job for job, end in self.ends.items() if end == now]
            changed = any(at == now for _, at in self.booked)
            new = [k for k, work in enumerate(self.jobs) if work.submit == now]
            if not (gone or new or changed or now >= wake):
                continue
            if gone:
                rows = np.zeros(len(gone), END)
                rows["job"], rows["attempt"] = gone, 1
                self.scheduler.feed(AttemptsEnded(rows))
            if changed:
                made = tuple(spec for spec, at in self.booked if at <= now < spec.end_ms)
                self.scheduler.feed(BookingsChanged(made))
            if new:
                block = submit_rows(len(new))
                block["job"] = block["class_index"] = new
                block["submit_ms"] = block["eligible_ms"] = now
                block["walltime_ms"] = [self.jobs[k].limit for k in new]
                self.scheduler.feed(JobsSubmitted(block, classes, (OwnerSpec(),)))
            wake = self.scheduler.run(now).wake_ms
            check_invariants(self.state)
            if len(self.starts) == len(self.jobs):
                break
        return self.starts


@pytest.mark.parametrize("backfill", list(Backfill))
@given(jobs=works, slice_work=st.sampled_from([1, 20, MANY]))
@settings(max_examples=examples(20), deadline=None)
def test_safety_no_licence_is_overused_and_nothing_starves(
    backfill: Backfill, jobs: list[Work], slice_work: int
) -> None:
    """Counted apart, at every start; all jobs start; slices and parking change nothing."""
    world = World(jobs, config(backfill, reservations=2, claim_after_ms=INF))
    starts = world.run()
    assert sorted(job for job, *_ in starts) == list(range(len(jobs)))
    for other in (
        config(backfill, reservations=2, claim_after_ms=INF, slice_work=slice_work),
        config(backfill, reservations=2, claim_after_ms=INF, parking=False),
    ):
        assert World(jobs, other).run() == starts


bookings = st.lists(
    st.tuples(
        st.integers(1, 60), st.integers(1, 40),
        st.sampled_from([{"matlab": 2}, {"matlab": 3}, {"idl": 1, "matlab": 1}]),
        st.sampled_from(["", "mine", "theirs"]), st.booleans(), st.integers(0, 30),
    ),
    min_size=1,
    max_size=3,
).map(
    lambda rows: [
        (
            BookingSpec(
                name=f"b{k}", start_ms=100 * k + made + begin, end_ms=100 * k + made + begin + length,
                nodes=("n0",) if node else (), booking=whose or "upkeep", maintenance=not whose, licences=licences,
            ),
            made,
        )
        for k, (begin, length, licences, whose, node, made) in enumerate(rows)
    ]
)  # fmt: skip


@pytest.mark.parametrize("backfill", list(Backfill))
@given(jobs=works, inside=st.lists(st.booleans(), min_size=18, max_size=18), booked=bookings,
       slice_work=st.sampled_from([1, 20, MANY]))  # fmt: skip
@example(  # without a limit it is ended with its booking, so a later booking of what it took outside is no obstacle
    jobs=[Work(0, 1, 1, {"idl": 2, "matlab": 1}, INF, 1)], inside=[True], slice_work=1,
    booked=[
        (BookingSpec("b0", 101, 102, booking="mine", licences={"matlab": 2}), 0),
        (BookingSpec("b1", 201, 202, booking="upkeep", maintenance=True, licences={"idl": 1, "matlab": 1}), 0),
    ],
)  # fmt: skip
@settings(max_examples=examples(20), deadline=None)
def test_safety_what_bookings_set_aside_of_a_licence_is_there_when_they_begin(
    backfill: Backfill, jobs: list[Work], inside: list[bool], booked: list[tuple[BookingSpec, int]], slice_work: int
) -> None:
    """For whoever is in the booking; all others start around it; slices and parking change nothing."""
    jobs = [work._replace(booking="mine") if mine else work for work, mine in zip(jobs, inside, strict=False)]
    starts = World(jobs, config(backfill, reservations=2, claim_after_ms=INF), booked).run()
    assert {job for job, *_ in starts} >= {k for k, work in enumerate(jobs) if not work.booking}
    for other in (
        config(backfill, reservations=2, claim_after_ms=INF, slice_work=slice_work),
        config(backfill, reservations=2, claim_after_ms=INF, parking=False),
    ):
        assert World(jobs, other, booked).run() == starts


pool_works = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=25
)


def textbook(jobs: list[tuple[int, int, int, int]]) -> list[int]:
    """EASY on four of one licence, by its definition: everything anew at each instant."""
    start = [-1] * len(jobs)
    now = 0
    while min(start) < 0:
        running = [k for k, s in enumerate(start) if s >= 0 and s + jobs[k][3] > now]
        queue = [k for k, job in enumerate(jobs) if start[k] < 0 and job[0] <= now]
        free = 4 - sum(jobs[k][1] for k in running)
        while queue and jobs[queue[0]][1] <= free:
            start[queue[0]] = now
            free -= jobs[queue[0]][1]
            running.append(queue.pop(0))
        if queue:
            head = queue.pop(0)
            ends = sorted((start[k] + jobs[k][2], jobs[k][1]) for k in running)
            shadow = next(at for at, _ in ends if free + sum(n for until, n in ends if until <= at) >= jobs[head][1])
            extra = free + sum(n for until, n in ends if until <= shadow) - jobs[head][1]
            for k in queue:
                short = now + jobs[k][2] <= shadow
                if jobs[k][1] <= free and (short or jobs[k][1] <= extra):
                    free -= jobs[k][1]
                    extra -= 0 if short else jobs[k][1]
                    start[k] = now
        now += 1
    return start


@given(rows=pool_works)
@settings(max_examples=examples(60), deadline=None)
def test_easy_on_a_licence_is_what_its_definition_says(rows: list[tuple[int, int, int, int]]) -> None:
    """Where nodes are plenty, a licence is a pool: the head's promise, what may pass it, what may not."""
    jobs = [
        (sum(gap for gap, *_ in rows[: k + 1]), count, limit, min(run, limit))
        for k, (_gap, count, limit, run) in enumerate(rows)
    ]
    state, sink, scheduler = engine(config(), NodeSpec("big", {"cpu": 1_000}))
    start = [-1] * len(jobs)
    classes = tuple(ClassSpec({"cpu": 1}, licences={"matlab": k + 1}) for k in range(4))
    now = 0
    while min(start) < 0:
        gone = [k for k, s in enumerate(start) if s >= 0 and s + jobs[k][3] == now]
        new = [k for k, row in enumerate(jobs) if row[0] == now]
        if gone:
            scheduler.feed(ended(*gone))
        if new:
            block = submit_rows(len(new))
            block["job"], block["class_index"] = new, [jobs[k][1] - 1 for k in new]
            block["submit_ms"] = block["eligible_ms"] = now
            block["walltime_ms"] = [jobs[k][2] for k in new]
            scheduler.feed(JobsSubmitted(block, classes))
        seen = len(sink.jobs())
        scheduler.run(now)
        check_invariants(state)
        for number in sink.jobs()[seen:]:
            start[number] = now
        now += 1
    assert start == textbook(jobs)


def licensed(number: int, count: int, walltime_ms: int, name: str = "matlab") -> JobsSubmitted:
    """One job of one core that wants licences."""
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = number, walltime_ms
    return JobsSubmitted(rows, (ClassSpec({"cpu": 1}, licences={name: count}),))


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.TOP_K, Backfill.CONSERVATIVE])
def test_a_big_ask_is_not_starved_by_small_ones(backfill: Backfill) -> None:
    """Three of four come free at 100: one that ends by then may go, one that would not may not; why says so."""
    state, sink, scheduler = engine(config(backfill), *NODES)
    scheduler.feed(licensed(1, 3, 100))
    scheduler.run(0)
    scheduler.feed(licensed(2, 4, 50))
    scheduler.feed(licensed(3, 1, 150))
    scheduler.feed(licensed(4, 1, 90))
    scheduler.run(10)
    assert sink.jobs() == [1, 4]
    verdict = explain(state, 2, 10)
    assert (verdict.reason, verdict.starts_at_ms, verdict.basis) == (Reason.LICENCE, 100, "reservation")
    assert verdict.message == "licence matlab: 0 of 4 free, 4 needed; 4 come free in 90ms"
    assert explain(state, 3, 10).message.startswith("licence matlab: 0 of 4 free, 1 needed")
    scheduler.feed(ended(1, 4))
    scheduler.run(20)
    assert sink.jobs() == [1, 4, 2]


def test_a_total_that_changes_holds_from_then_on() -> None:
    """Fewer end nothing; more start what waits; what the policy does not know there is none of."""
    state, sink, scheduler = engine(config(), *NODES)
    scheduler.feed(licensed(1, 3, 100))
    scheduler.feed(licensed(2, 2, 100))
    scheduler.feed(licensed(3, 1, 100, "nag"))
    scheduler.run(0)
    assert sink.jobs() == [1]
    scheduler.feed(ConfigChanged(EngineConfig(policy=Policy(licences={"matlab": 2}), order="fcfs")))
    scheduler.run(0)
    assert [(row.name, row.total, row.used) for row in state.licences.rows()] == [
        ("idl", 0, 0), ("matlab", 2, 3), ("nag", 0, 0)
    ]  # fmt: skip
    assert explain(state, 3, 0).message == "licence nag: 0 of 0 free, 1 needed"
    scheduler.feed(ConfigChanged(EngineConfig(policy=Policy(licences={"matlab": 9, "nag": 1}), order="fcfs")))
    scheduler.run(0)
    assert sink.jobs() == [1, 2, 3]


def test_without_a_policy_nobody_counts_licences() -> None:
    """As nobody says how many there are."""
    _state, sink, scheduler = engine(EngineConfig(), *NODES)
    scheduler.feed(licensed(1, 1_000_000, 100))
    scheduler.run(0)
    assert sink.jobs() == [1]


def test_an_amount_that_is_none_is_refused() -> None:
    """The whole event is."""
    _state, _sink, scheduler = engine(config(), *NODES)
    with pytest.raises(EngineError, match="licence 'matlab': 0 is not an amount above 0"):
        scheduler.feed(licensed(1, 0, 100))
