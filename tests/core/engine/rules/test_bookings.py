"""Bookings: a job never runs into one, waits in time for its own, and everything else goes on around them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import EngineError
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    BookingsChanged,
    Health,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodeSpec,
    submit_rows,
    update_rows,
)
from hal.core.engine.rules.configuration import new_state
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.engine.why.explain import explain
from hal.core.engine.why.probing import Prober
from hal.core.model.verdict import Reason, Sooner
from tests.core.engine.clusters import ended, engine, job, places
from tests.examples import examples

MANY = 1 << 20
LAST_MS = 600
NODES = tuple(NodeSpec(f"n{k}", {"cpu": 2 + 2 * (k % 2)}, {"rack": "ab"[k // 2]}) for k in range(4))
EASY = EngineConfig(backfill=Backfill.EASY)


class Work(NamedTuple):
    """A job: when it comes, what it asks for, its limit (INF: none), how long it runs."""

    submit: int
    cpu: int
    gang: int
    limit: int
    run: int
    booking: str


class Start(NamedTuple):
    """Who started when and where."""

    job: int
    at: int
    nodes: tuple[str, ...]


works = st.lists(
    st.tuples(
        st.integers(0, 8), st.sampled_from([1, 1, 2, 4]), st.sampled_from([1, 1, 2, 3]),
        st.sampled_from([1, 3, 7, 15, 40, INF]), st.integers(1, 40), st.sampled_from(["", "", "", "", "mine"]),
    ),
    min_size=1,
    max_size=16,
).map(
    lambda rows: [
        Work(sum(gap for gap, *_ in rows[: k + 1]), cpu, 1 if cpu == 4 else gang, limit, min(run, limit), booking)
        for k, (_gap, cpu, gang, limit, run, booking) in enumerate(rows)
    ]
)  # fmt: skip
places_of_bookings: st.SearchStrategy[tuple[tuple[str, ...], int]] = st.sampled_from(
    [(("n0",), 0), (("n1", "n2"), 0), (("n0", "n1", "n2", "n3"), 0), ((), 1), ((), 2)]
)
times = st.tuples(st.integers(1, 60), st.integers(1, 40))
bookings = st.lists(
    st.tuples(
        times, places_of_bookings,
        st.sampled_from(["", "mine", "theirs"]), st.booleans(), st.integers(0, 30),
    ),
    min_size=1,
    max_size=4,
).map(
    lambda rows: [
        (
            BookingSpec(
                name=f"b{k}", start_ms=made + begin, end_ms=made + begin + length,
                nodes=named, count=count,
                booking=whose or "upkeep", maintenance=not whose, early=early and bool(whose), overlap=True,
            ),
            made,
        )
        for k, ((begin, length), (named, count), whose, early, made) in enumerate(rows)
    ]
)  # fmt: skip


class World:
    """An engine driven by its own wishes: a step when something happens or when it asked for one."""

    def __init__(self, jobs: list[Work], booked: list[tuple[BookingSpec, int]], config: EngineConfig) -> None:
        self.jobs = jobs
        self.booked = booked
        self.state = new_state(config)
        self.scheduler = Scheduler(self.state, self)
        self.now = 0
        self.starts: list[Start] = []
        self.ends: dict[int, int] = {}
        self.scheduler.feed(NodesChanged(NODES))

    def accept(self, plan: Any) -> None:
        """A sink that judges."""
        for start in plan.starts:
            first = int(start["row_offset"])
            rows = plan.rows[first : first + int(start["row_count"])].tolist()
            one = Start(int(start["job"]), self.now, tuple(self.state.node_name(row) for row in rows))
            self.ends[one.job] = self.now + self.jobs[one.job].run
            self.judge(one)
            self.starts.append(one)

    def judge(self, start: Start) -> None:
        """A start is lawful when its limit meets no booking but its own, and its own holds it, or ends it."""
        work = self.jobs[start.job]
        for name in start.nodes:
            row = self.state.node_index(name)
            there = [known.spec for known in self.state.bookings.all if row in known.rows]
            there = [spec for spec in there if spec.end_ms > self.now]
            mine = [spec for spec in there if work.booking and spec.serves == work.booking]
            until = self.now + work.limit
            inside = [spec for spec in mine if self.holds(spec, work.limit)]
            assert inside or not work.booking, f"{start} is not in its booking"
            if inside:
                until = min(until, inside[0].end_ms)
                self.ends[start.job] = min(self.ends[start.job], until)
            for spec in there:
                assert spec in mine or until <= spec.start_ms, f"{start} runs into {spec}"

    def holds(self, spec: BookingSpec, limit: int) -> bool:
        """Whether a booking lets its work start now."""
        whole = limit >= spec.end_ms - spec.start_ms
        return (spec.early or spec.start_ms <= self.now) and (whole or self.now + limit <= spec.end_ms)

    def run(self) -> list[Start]:
        """Until everything that can start has started, or it is late."""
        wake = 0
        classes = tuple(ClassSpec({"cpu": w.cpu}, w.gang, booking=w.booking) for w in self.jobs)
        for now in range(LAST_MS):
            self.now = now
            made = [spec for spec, at in self.booked if at <= now < spec.end_ms]
            changed = any(at == now for _, at in self.booked)
            gone = [one for one, end in self.ends.items() if end == now]
            new = [k for k, work in enumerate(self.jobs) if work.submit == now]
            if not (changed or gone or new or now >= wake):
                continue
            if gone:
                rows = np.zeros(len(gone), END)
                rows["job"], rows["attempt"] = gone, 1
                self.scheduler.feed(AttemptsEnded(rows))
            if changed:
                self.scheduler.feed(BookingsChanged(tuple(made)))
            if new:
                block = submit_rows(len(new))
                block["job"] = block["class_index"] = new
                block["submit_ms"] = block["eligible_ms"] = now
                block["walltime_ms"] = [self.jobs[k].limit for k in new]
                self.scheduler.feed(JobsSubmitted(block, classes, (OwnerSpec(),)))
            wake = self.scheduler.run(now).wake_ms
            check_invariants(self.state)
        return self.starts


@pytest.mark.parametrize("backfill", list(Backfill))
@given(jobs=works, booked=bookings, slice_work=st.sampled_from([1, 20, MANY]))
@settings(max_examples=examples(20), deadline=None)
def test_nothing_runs_into_a_booking_and_nothing_waits_for_ever(
    backfill: Backfill, jobs: list[Work], booked: list[tuple[BookingSpec, int]], slice_work: int
) -> None:
    """Starts are lawful whatever is booked when, work outside bookings starts, slices and parking change nothing."""
    config = EngineConfig(backfill=backfill, reservations=2, claim_after_ms=INF)
    world = World(jobs, booked, config)
    starts = world.run()
    free = {start.job for start in starts}
    assert free >= {k for k, work in enumerate(jobs) if not work.booking}
    for other in (
        EngineConfig(backfill=backfill, reservations=2, claim_after_ms=INF, slice_work=slice_work),
        EngineConfig(backfill=backfill, reservations=2, claim_after_ms=INF, parking=False),
    ):
        assert World(jobs, booked, other).run() == starts


POOL = 6
pool_works = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, POOL), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=25
)


def textbook(jobs: list[tuple[int, int, int, int]], begin: int, end: int, shortest: bool) -> list[int]:
    """EASY on a pool that is booked for [begin, end), by its definition: everything anew at each instant."""
    start = [-1] * len(jobs)
    now = 0
    while min(start) < 0:
        running = [k for k, s in enumerate(start) if s >= 0 and s + jobs[k][3] > now]
        queue = [k for k, job in enumerate(jobs) if start[k] < 0 and job[0] <= now]
        free = POOL - sum(jobs[k][1] for k in running)

        def fits(k: int, at: int) -> bool:
            return at + jobs[k][2] <= begin or at >= end

        while queue and jobs[queue[0]][1] <= free and fits(queue[0], now):
            start[queue[0]] = now
            free -= jobs[queue[0]][1]
            running.append(queue.pop(0))
        if queue:
            head = queue.pop(0)
            ends = [(start[k] + jobs[k][2], jobs[k][1]) for k in running]

            def there(at: int, ends: list[tuple[int, int]] = ends, free: int = free) -> int:
                return free + sum(procs for until, procs in ends if until <= at)

            instants = sorted({now, end, *(until for until, _ in ends)})
            shadow = next(at for at in instants if at >= now and there(at) >= jobs[head][1] and fits(head, at))
            extra = there(shadow) - jobs[head][1]
            for k in sorted(queue, key=lambda k: (jobs[k][2] if shortest else 0, k)):
                short = now + jobs[k][2] <= shadow
                if jobs[k][1] <= free and fits(k, now) and (short or jobs[k][1] <= extra):
                    free -= jobs[k][1]
                    extra -= 0 if short else jobs[k][1]
                    start[k] = now
        now += 1
    return start


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.EASY_SJBF])
@given(rows=pool_works, begin=st.integers(1, 60), length=st.integers(1, 40))
@settings(max_examples=examples(40), deadline=None)
def test_easy_around_a_booking_of_the_pool_is_what_its_definition_says(
    backfill: Backfill, rows: list[tuple[int, int, int, int]], begin: int, length: int
) -> None:
    """The head's shadow respects the booking, and so does everybody else."""
    jobs = [
        (sum(gap for gap, *_ in rows[: k + 1]), procs, limit, min(run, limit))
        for k, (_gap, procs, limit, run) in enumerate(rows)
    ]
    state, sink, scheduler = engine(EngineConfig(backfill=backfill), NodeSpec("pool", {"cpu": POOL}))
    scheduler.feed(BookingsChanged((BookingSpec("upkeep", begin, begin + length, ("pool",), maintenance=True),)))
    start = [-1] * len(jobs)
    classes = tuple(ClassSpec({"cpu": k + 1}) for k in range(POOL))
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
    assert start == textbook(jobs, begin, begin + length, backfill is Backfill.EASY_SJBF)


# ── one thing at a time ───────────────────────────────────────────────────────────────────────────────────────────────

ONE = NodeSpec("n0", {"cpu": 4})


def upkeep(start: int, end: int, *nodes: str, name: str = "upkeep") -> BookingsChanged:
    """Maintenance of these nodes."""
    return BookingsChanged((BookingSpec(name, start, end, nodes, maintenance=True),))


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_job_may_end_exactly_when_a_booking_begins(backfill: Backfill) -> None:
    """One ms longer waits until the booking is over, and starts then without any other event."""
    state, sink, scheduler = engine(EngineConfig(backfill=backfill), ONE)
    scheduler.feed(upkeep(100, 200, "n0"))
    scheduler.feed(job(1, 2, walltime_ms=100))
    scheduler.feed(job(2, 2, walltime_ms=101))
    step = scheduler.run(0)
    assert (sink.jobs(), step.wake_ms) == ([1], 100)
    scheduler.feed(ended(1))
    assert scheduler.run(100).wake_ms == 200
    scheduler.run(200)
    assert sink.jobs() == [1, 2]
    assert not state.bookings.all


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.TOP_K, Backfill.CONSERVATIVE])
def test_short_work_goes_ahead_of_what_waits_for_the_end_of_a_booking(backfill: Backfill) -> None:
    """The one that waits is promised the end of the booking; nothing that ends before is in its way."""
    state, sink, scheduler = engine(EngineConfig(backfill=backfill), ONE)
    scheduler.feed(upkeep(100, 200, "n0"))
    scheduler.feed(job(1, 4, walltime_ms=150))
    scheduler.feed(job(2, 4, walltime_ms=60))
    scheduler.run(0)
    assert sink.jobs() == [2]
    verdict = explain(state, 1, 0)
    assert (verdict.reason, verdict.starts_at_ms) == (Reason.RESOURCES, 200)


def test_a_job_without_a_walltime_never_starts_on_nodes_with_a_booking_ahead() -> None:
    """It takes a node without one, else it waits until none is ahead."""
    _state, sink, scheduler = engine(EASY, ONE, NodeSpec("n1", {"cpu": 4}))
    scheduler.feed(upkeep(1_000, 2_000, "n0"))
    scheduler.feed(job(1, 4))
    scheduler.feed(job(2, 4))
    scheduler.run(0)
    assert sink.jobs() == [1]
    scheduler.run(2_000)
    assert sink.jobs() == [1, 2]


def test_why_names_the_booking_when_it_begins_and_what_would_help() -> None:
    """The longest walltime that would still do."""
    state, _sink, scheduler = engine(EASY, ONE)
    scheduler.feed(upkeep(60_000, 120_000, "n0"))
    scheduler.feed(job(1, 2, walltime_ms=90_000))
    scheduler.run(0)
    verdict = explain(state, 1, 0)
    assert verdict.reason is Reason.BOOKING
    assert verdict.message == (
        "waits for booking 'upkeep': node n0 is kept 1970-01-01 00:01 to 00:02 UTC, in 1m; it may run for 1m30s"
    )
    assert verdict.starts_at_ms == 120_000
    seen = Prober().look(state, 1, 0)
    assert seen is not None
    assert (seen.sooner, seen.starts_at_ms) == ((Sooner(field="walltime", value="1m"),), 120_000)
    assert [known.spec.name for known in state.bookings.all] == ["upkeep"]


def course(start: int, end: int, *nodes: str, **more: Any) -> BookingSpec:
    """A booking that jobs can name."""
    return BookingSpec("course", start, end, nodes, **more)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_job_of_a_booking_runs_on_its_nodes_and_within_its_time(backfill: Backfill) -> None:
    """Not before it begins, not on other nodes, not beyond its end; others keep off."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), ONE, NodeSpec("n1", {"cpu": 4}))
    scheduler.feed(BookingsChanged((course(100, 200, "n1"),)))
    rows = submit_rows(2)
    rows["job"], rows["walltime_ms"] = [1, 2], [50, 51]
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 2}, booking="course"),)))
    assert scheduler.run(0).wake_ms == 100
    assert explain(state, 1, 0).message == "runs in booking 'course', which begins in 100ms"
    scheduler.run(150)
    assert places(state) == {1: ["n1"]}
    scheduler.feed(job(3, 4, walltime_ms=10))
    scheduler.feed(job(4, 2, walltime_ms=10))
    scheduler.run(151)
    assert places(state) == {1: ["n1"], 3: ["n0"]}
    check_invariants(state)


def test_early_lets_a_bookings_jobs_start_before_it() -> None:
    """As far as nothing else is there; they still end by its end."""
    state, _sink, scheduler = engine(EASY, ONE)
    scheduler.feed(BookingsChanged((course(100, 200, "n0", early=True),)))
    rows = submit_rows(2)
    rows["job"], rows["walltime_ms"] = [1, 2], [90, 99]
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 2}, booking="course"),)))
    scheduler.run(0)
    assert places(state) == {1: ["n0"], 2: ["n0"]}
    scheduler.feed(ended(1, 2))
    rows["job"] = [3, 4]
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 2}, booking="course"),)))
    scheduler.run(110)
    assert places(state) == {3: ["n0"]}


@pytest.mark.parametrize("backfill", list(Backfill))
def test_work_that_asks_for_its_whole_booking_starts_at_any_time_of_it(backfill: Backfill) -> None:
    """It is ended with the booking, so others are promised its node from then on."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), ONE)
    scheduler.feed(BookingsChanged((course(100, 200, "n0"),)))
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 100
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 2}, booking="course"),)))
    scheduler.feed(job(2, 4, walltime_ms=300))
    scheduler.run(160)
    assert places(state) == {1: ["n0"]}
    if backfill is not Backfill.NONE:
        assert explain(state, 2, 160).starts_at_ms == 200


def test_work_of_a_later_booking_is_in_nobodys_way() -> None:
    """Without backfill nothing passes the first that waits; what waits for the time of its booking is not that."""
    state, _sink, scheduler = engine(EngineConfig(backfill=Backfill.NONE), ONE)
    scheduler.feed(BookingsChanged((course(1_000, 2_000, "n0"),)))
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 100
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 2}, booking="course"),)))
    scheduler.feed(job(2, 4, walltime_ms=300))
    scheduler.run(0)
    assert places(state) == {2: ["n0"]}


def test_a_floating_booking_takes_the_nodes_that_come_free_soonest() -> None:
    """By walltimes, then by row; it keeps them, and replaces one that is lost."""
    nodes = [NodeSpec(f"n{k}", {"cpu": 4}, {"rack": "a" if k < 3 else "b"}) for k in range(4)]
    state, _sink, scheduler = engine(EASY, *nodes)
    for number, walltime in ((1, 300), (2, 100), (3, 200)):
        scheduler.feed(job(number, 4, walltime_ms=walltime))
    scheduler.run(0)
    in_rack = (Requirement("rack", Match.IN, ("a",)),)
    scheduler.feed(BookingsChanged((BookingSpec("float", 1_000, 2_000, count=2, constraints=in_rack),)))
    assert state.bookings.all[0].rows == (1, 2)
    scheduler.feed(ended(1))
    scheduler.feed(BookingsChanged((BookingSpec("float", 1_000, 2_000, count=2, constraints=in_rack),)))
    assert state.bookings.all[0].rows == (1, 2)
    scheduler.feed(NodesChanged((NodeSpec("n1", {"cpu": 4}, {"rack": "a"}, Health.DOWN),)))
    assert state.bookings.all[0].rows == (0, 2)
    check_invariants(state)


def test_floating_bookings_avoid_one_another_unless_they_may_share() -> None:
    """Two at the same time take different nodes."""
    state, _sink, scheduler = engine(EASY, *(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(3)))
    one, two = BookingSpec("one", 10, 20, count=2), BookingSpec("two", 15, 30, count=2)
    scheduler.feed(BookingsChanged((one, two)))
    assert [known.rows for known in state.bookings.all] == [(0, 1), (2,)]


def test_attempts_that_were_there_when_it_was_booked_may_stay() -> None:
    """Nothing new joins them; the invariant knows the difference."""
    state, sink, scheduler = engine(EASY, ONE)
    scheduler.feed(job(1, 2, walltime_ms=500))
    scheduler.run(0)
    scheduler.feed(upkeep(100, 200, "n0"))
    scheduler.feed(job(2, 2, walltime_ms=10))
    scheduler.run(100)
    check_invariants(state)
    assert sink.jobs() == [1]


def test_a_walltime_is_not_made_longer_into_a_booking() -> None:
    """The edit is refused as a whole, with the booking's name."""
    state, _sink, scheduler = engine(EASY, ONE)
    scheduler.feed(job(1, 2, walltime_ms=50))
    scheduler.run(0)
    scheduler.feed(upkeep(100, 200, "n0"))
    rows = update_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 150
    with pytest.raises(EngineError, match="job 1 runs on nodes of booking 'upkeep', which starts at 100"):
        scheduler.feed(JobsUpdated(rows))
    rows["walltime_ms"] = 100
    scheduler.feed(JobsUpdated(rows))
    check_invariants(state)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (BookingSpec("", 1, 2, ("n0",)), "a name is needed"),
        (BookingSpec("b", 2, 2, ("n0",)), "start 2 must be before end 2"),
        (BookingSpec("b", 1, 2), "either nodes or a count above 0 is needed"),
        (BookingSpec("b", 1, 2, ("n0",), 1), "either nodes or a count above 0 is needed"),
        (BookingSpec("b", 1, 2, ("n0", "n0")), "names a node twice"),
    ],
)
def test_a_booking_that_says_nothing_lawful_changes_nothing(spec: BookingSpec, says: str) -> None:
    """One error that names it; what was booked stays."""
    state, _sink, scheduler = engine(EASY, ONE)
    scheduler.feed(upkeep(100, 200, "n0"))
    with pytest.raises(EngineError, match=says):
        scheduler.feed(BookingsChanged((spec,)))
    assert [known.spec.name for known in state.bookings.all] == ["upkeep"]


def come(scheduler: Scheduler, number: int, cpu: int, walltime_ms: int, tasks: int, booking: str = "") -> None:
    """One job."""
    rows = submit_rows(1)
    rows["job"], rows["tasks"], rows["walltime_ms"] = number, tasks, walltime_ms
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, booking=booking),), (OwnerSpec(),)))


@pytest.mark.parametrize("backfill", list(Backfill))
def test_without_a_walltime_a_job_starts_on_a_node_that_is_not_booked(backfill: Backfill) -> None:
    """a is booked, b is not: at 1 s, never plus the time of day is never, which no booking of b comes before."""
    state, sink, scheduler = engine(
        EngineConfig(backfill=backfill), NodeSpec("a", {"cpu": 1}), NodeSpec("b", {"cpu": 1})
    )
    scheduler.feed(BookingsChanged((BookingSpec(name="upkeep", start_ms=5_000, end_ms=6_000, nodes=("a",)),)))
    come(scheduler, 1, 1, INF, tasks=2)
    scheduler.run(1_000)
    assert sink.jobs() == [1]
    assert places(state) == {1: ["b"]}


def test_a_claim_in_a_booking_takes_no_node_that_other_work_is_promised() -> None:
    """Job 1 is promised the node after the booking; the third task of job 2 would begin when the booking ends, never,
    and claims: not the same node, which is promised once."""
    state, _sink, scheduler = engine(EngineConfig(claim_after_ms=0), NodeSpec("n", {"cpu": 4}))
    come(scheduler, 1, 2, INF, tasks=3)
    scheduler.run(0)
    scheduler.feed(BookingsChanged((BookingSpec(name="b", start_ms=100, end_ms=101, nodes=("n",)),)))
    come(scheduler, 2, 1, 1, tasks=3, booking="b")
    scheduler.run(0)
    scheduler.feed(ended(1))
    for now_ms in (0, 30, 100, 101, 102):
        scheduler.run(now_ms)
        check_invariants(state)
