"""Advice: what policies read of it, from when on, for how long; and that nothing else depends on it."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine import EngineError, State, new_state, scoring
from hal.core.engine import scheduler as scheduling
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import INF, AdviceUpdated, AdviceWithdrawn, ClockAdvanced, ConfigChanged, KeySpace, NodeSpec
from hal.core.engine.policies import register
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.tables import advice as table
from hal.core.engine.views import advice_events, known_keys, reservations
from hal.core.engine.why.probing import Prober
from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request
from tests.core.engine.advised_world import AdvisedWorld, check_answers
from tests.core.engine.clusters import Starts, ended, engine, job, places

A, B, C = NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}), NodeSpec("c", {"cpu": 4})


class Cheap:
    """The node with the lowest price; 0.5 where none is advised. Remembers how many rows each call had."""

    info = PolicyInfo("test-cheap", "score/2", reads_advice=("price",))
    shown: ClassVar[list[int]] = []

    def score(self, request: Request, view: NodeView) -> NDArray[np.float64]:
        self.shown.append(view.rows)
        return 1.0 - np.clip(np.nan_to_num(view.advice["price"], nan=0.5), 0.0, 1.0)


class CheapAndFull(Cheap):
    """The same, and of equals the node with the least free."""

    info = PolicyInfo("test-cheap-full", "score/2", reads_free=True, reads_advice=("price",))

    def score(self, request: Request, view: NodeView) -> NDArray[np.float64]:
        return 0.9 * super().score(request, view) + 0.1 * (1.0 - view.free[0] / np.maximum(view.capacity[0], 1.0))


class Urgent:
    """By advised urgency: of a job before all else, then of its account; then job id."""

    info = PolicyInfo("test-urgent", "order/3", reads_advice=("urgency", "favour"))

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return (-1_000 * np.nan_to_num(jobs.advice["urgency"])).astype(np.int64)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return (-100 * np.nan_to_num(buckets.advice["favour"])).astype(np.int64)


for _policy in (Cheap(), CheapAndFull(), Urgent()):
    register(_policy)
CHEAP = EngineConfig(placement="test-cheap")
URGENT = EngineConfig(order="test-urgent", backfill=Backfill.NONE)


def advised(
    values: dict[Any, float], version: int = 1, kind: str = "price", space: KeySpace = KeySpace.NODES, **more: Any
) -> AdviceUpdated:
    return AdviceUpdated(kind, space, version, tuple(values), np.array(list(values.values()), np.float64), **more)


def started(config: EngineConfig, *advice: AdviceUpdated, now_ms: int = 0) -> list[str]:
    """Where one job starts on a, b or c, after this advice."""
    state, _sink, scheduler = engine(config, A, B, C)
    for event in advice:
        scheduler.feed(event)
    scheduler.feed(job(1, 1))
    scheduler.run(now_ms)
    check_invariants(state)
    return places(state)[1]


@pytest.mark.parametrize("policy", ["test-cheap", "test-cheap-full"])
def test_a_score_reads_advice_about_nodes(policy: str) -> None:
    """b costs 0.1, a 0.9, c counts as 0.5."""
    assert started(EngineConfig(placement=policy), advised({"a": 0.9, "b": 0.1})) == ["b"]


@pytest.mark.parametrize("policy", ["test-cheap", "test-cheap-full"])
@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_the_next_pass_reads_what_has_changed(policy: str, backfill: Backfill) -> None:
    """Job 1 goes to b. Then a costs less, and a shape whose best node was b goes to a."""
    state, _sink, scheduler = engine(EngineConfig(placement=policy, backfill=backfill), A, B, C)
    scheduler.feed(advised({"a": 0.9, "b": 0.1}))
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    scheduler.feed(advised({"a": 0.05}, 2, whole=False))
    scheduler.feed(job(2, 1))
    scheduler.run(1)
    assert places(state) == {1: ["b"], 2: ["a"]}
    check_invariants(state)


def test_only_nodes_whose_advice_changed_are_scored_again() -> None:
    """Three rows once; then one."""
    _state, _sink, scheduler = engine(CHEAP, A, B, C)
    Cheap.shown.clear()
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    scheduler.feed(advised({"a": 0.5, "b": 0.7}))
    scheduler.feed(job(2, 1))
    scheduler.run(1)
    assert Cheap.shown == [3, 2]
    scheduler.feed(advised({"a": 0.5, "b": 0.7, "elsewhere": 1.0}, 2))
    scheduler.feed(job(3, 1))
    scheduler.run(2)
    assert Cheap.shown == [3, 2]


def test_scores_are_brought_up_to_date_in_slices_and_then_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five shapes wait, each a slice of its own: four steps only learn, the fifth decides too."""
    monkeypatch.setattr(scoring, "SCORES_A_SLICE", 1)
    state, _sink, scheduler = engine(CHEAP, A, B, C)
    for number in range(1, 6):
        scheduler.feed(job(number, 4, walltime_ms=number))
    scheduler.run(0)
    for number in range(6, 11):
        scheduler.feed(job(number, number - 5, gang=3))
    scheduler.run(1)
    scheduler.feed(ended(1, 2, 3))
    scheduler.feed(advised({"c": 0.0}))
    before = len(Cheap.shown)
    steps = 0
    while scheduler.step(2).more:
        steps += 1
    assert steps >= 4
    assert len(Cheap.shown) - before >= 5
    assert not state.plugins.outdated_lines
    check_invariants(state)


def test_advice_about_a_node_that_joins_later_is_kept() -> None:
    """d is the cheapest when it joins."""
    from hal.core.engine.events import NodesChanged

    state, _sink, scheduler = engine(CHEAP, A)
    scheduler.feed(advised({"a": 0.9, "d": 0.1}))
    assert known_keys(state, ("price",)) == {"price": 1}
    scheduler.feed(NodesChanged((NodeSpec("d", {"cpu": 4}),)))
    assert known_keys(state, ("price",)) == {"price": 2}
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    assert places(state)[1] == ["d"]


@pytest.mark.parametrize(
    ("second", "chosen"),
    [
        (advised({"a": 0.0}, 2), ["a"]),  # whole: b counts as 0.5 again
        (advised({"a": 0.2}, 2, whole=False), ["b"]),
        (advised({"b": np.nan, "c": 0.4}, 2, whole=False), ["c"]),
        (advised({"a": 0.0}, 1), ["b"]),  # not newer
        (advised({"a": 0.0}, 2, more=True), ["b"]),  # not complete
        (advised({"a": 0.0}, 2, kind="other"), ["b"]),
    ],
)
def test_an_update_replaces_or_changes_what_is_held(second: AdviceUpdated, chosen: list[str]) -> None:
    """At first b costs 0.1."""
    assert started(CHEAP, advised({"a": 0.9, "b": 0.1}), second) == chosen


def test_an_update_in_parts_counts_as_a_whole_when_it_is_complete() -> None:
    """b's old price is gone; c is the cheapest of both parts."""
    first = advised({"a": 0.9}, 2, more=True)
    assert started(CHEAP, advised({"b": 0.0}), first, advised({"c": 0.3}, 2)) == ["c"]


def test_parts_of_an_update_that_was_given_up_are_dropped() -> None:
    """Version 2 never came to its end; its price of a counts for nothing."""
    state, _sink, scheduler = engine(CHEAP, A, B)
    scheduler.feed(advised({"a": 0.0}, 2, more=True))
    scheduler.feed(advised({"b": 0.1}, 3))
    assert dict(state.advice.items("price")) == {"b": 0.1}
    check_invariants(state)


def test_advice_expires_by_the_engines_clock() -> None:
    """Until 1,000 b is the cheapest; then all are alike, and a is the first."""
    prices = advised({"b": 0.1}, expires_ms=1_000)
    assert started(CHEAP, prices, now_ms=999) == ["b"]
    assert started(CHEAP, prices, now_ms=1_000) == ["a"]


def test_a_step_names_the_expiry_of_what_is_read_as_its_next_wake_up() -> None:
    """Of price, which is read; not of load."""
    _state, _sink, scheduler = engine(CHEAP, A)
    scheduler.feed(advised({"b": 0.1}, expires_ms=1_000))
    scheduler.feed(advised({"b": 0.1}, kind="load", expires_ms=500))
    assert scheduler.run(0).wake_ms == 1_000
    assert scheduler.run(1_000).wake_ms == INF


def test_a_policy_that_is_chosen_after_an_expiry_does_not_read_what_has_expired() -> None:
    """Nobody read price when its time came."""
    state, _sink, scheduler = engine(EngineConfig(), A, B)
    scheduler.feed(advised({"b": 0.1}, expires_ms=1_000))
    scheduler.feed(job(1, 1))
    scheduler.run(2_000)
    scheduler.feed(ConfigChanged(CHEAP))
    scheduler.feed(job(2, 1))
    scheduler.run(2_001)
    assert places(state) == {1: ["a"], 2: ["a"]}


def test_withdrawn_advice_counts_no_more() -> None:
    """Then a is the first of equals."""
    state, _sink, scheduler = engine(CHEAP, A, B)
    scheduler.feed(advised({"b": 0.1}))
    scheduler.feed(AdviceWithdrawn(("price", "unknown")))
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    assert places(state)[1] == ["a"]
    assert not state.advice.kinds
    check_invariants(state)


def test_advice_that_no_policy_reads_asks_for_no_pass() -> None:
    """Nor does what only a score reads: it lets nothing start."""
    for config in (EngineConfig(), CHEAP):
        state, _sink, scheduler = engine(config, A)
        scheduler.run(0)
        scheduler.feed(advised({"a": 0.1}))
        assert not state.advice.awaits_pass


@pytest.mark.parametrize("space", [KeySpace.ACCOUNTS, KeySpace.QUEUES, KeySpace.USERS])
def test_an_order_reads_advice_about_owners(space: KeySpace) -> None:
    """Account y goes before x; for queues and users all jobs are alike."""
    _state, sink, scheduler = engine(URGENT, A)
    scheduler.feed(job(1, 4, account="x"))
    scheduler.run(0)
    scheduler.feed(job(2, 4, account="x"))
    scheduler.feed(job(3, 4, account="y"))
    scheduler.run(1)
    scheduler.feed(advised({"y": 5.0}, kind="favour", space=space))
    scheduler.run(2)
    scheduler.feed(ended(1))
    scheduler.run(3)
    assert sink.jobs() == [1, 3 if space is KeySpace.ACCOUNTS else 2]


def test_advice_about_owners_moves_the_reservation() -> None:
    """Job 2 is the first that waits for job 1's end, until account y is favoured: then it is job 3."""
    state, _sink, scheduler = engine(EngineConfig(order="test-urgent"), A)
    scheduler.feed(job(1, 4, account="x", walltime_ms=100))
    scheduler.run(0)
    scheduler.feed(job(2, 4, account="x", walltime_ms=100))
    scheduler.feed(job(3, 4, account="y", walltime_ms=100))
    scheduler.run(1)
    first = reservations(state)["job"].tolist()
    scheduler.feed(advised({"y": 5.0}, kind="favour", space=KeySpace.ACCOUNTS))
    scheduler.run(2)
    assert (first, reservations(state)["job"].tolist()) == ([2], [3])


def test_an_order_reads_advice_about_jobs_before_and_after_they_are_submitted() -> None:
    """3 was advised before it came, 4 while it waits: 4, 3, 2."""
    state, sink, scheduler = engine(URGENT, A)
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    scheduler.feed(advised({3: 1.0}, kind="urgency", space=KeySpace.JOBS))
    for number in (2, 3, 4):
        scheduler.feed(job(number, 4))
    scheduler.run(1)
    scheduler.feed(advised({3: 1.0, 4: 2.0}, 2, kind="urgency", space=KeySpace.JOBS))
    for now, number in enumerate((1, 4, 3), 2):
        scheduler.feed(ended(number))
        scheduler.run(now)
        check_invariants(state)
    assert sink.jobs() == [1, 4, 3, 2]


def test_keys_go_back_when_advice_about_jobs_expires() -> None:
    """Job 3 was urgent until 1,000, and nothing ended before."""
    state, sink, scheduler = engine(URGENT, A)
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    scheduler.feed(job(2, 4))
    scheduler.feed(job(3, 4))
    scheduler.feed(advised({3: 1.0}, kind="urgency", space=KeySpace.JOBS, expires_ms=1_000))
    assert scheduler.run(1).wake_ms <= 1_000
    scheduler.run(1_000)
    scheduler.feed(ended(1))
    scheduler.run(1_001)
    assert sink.jobs() == [1, 2]
    check_invariants(state)


def test_an_attempt_that_is_requeued_waits_where_newer_advice_puts_it() -> None:
    """Job 1 runs while it is advised about; requeued, it goes before 2."""
    from hal.core.engine.events import END, AttemptsEnded

    _state, sink, scheduler = engine(URGENT, A)
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    scheduler.feed(job(2, 4, priority=0))
    scheduler.feed(advised({2: 1.0, 1: 3.0}, kind="urgency", space=KeySpace.JOBS))
    scheduler.run(1)
    rows = np.zeros(1, END)
    rows["job"], rows["attempt"], rows["requeue"] = 1, 1, 1
    scheduler.feed(AttemptsEnded(rows))
    scheduler.run(2)
    assert sink.jobs() == [1, 1]


def test_keys_are_asked_for_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 25 jobs ten at a time: two steps before the pass, and the rest before the next."""
    monkeypatch.setattr(scheduling, "KEYS_A_SLICE", 10)
    state, _sink, scheduler = engine(URGENT, A)
    for number in range(1, 27):
        scheduler.feed(job(number, 4))
    scheduler.run(0)
    scheduler.feed(advised({number: float(number) for number in range(2, 27)}, kind="urgency", space=KeySpace.JOBS))
    due = [state.advice.due_jobs]
    while scheduler.step(1).more:
        due.append(state.advice.due_jobs)
    assert due[:4] == [25, 15, 5, 0]
    check_invariants(state)


def test_an_order_that_was_changed_has_nothing_due() -> None:
    """All keys are asked for with the new order."""
    state, _sink, scheduler = engine(URGENT, A)
    scheduler.feed(job(1, 4))
    scheduler.feed(job(2, 4))
    scheduler.feed(advised({1: 1.0, 2: 2.0}, kind="urgency", space=KeySpace.JOBS))
    scheduler.feed(ConfigChanged(EngineConfig()))
    assert (state.advice.due_jobs, state.advice.awaits_pass) == (0, False)
    check_invariants(state)


def test_what_was_held_can_be_fed_to_another_state() -> None:
    """As to an engine that is built again: equal states."""
    state, other = new_state(CHEAP), new_state(CHEAP)
    schedulers = Scheduler(state, Starts()), Scheduler(other, Starts())
    schedulers[0].feed(advised({"a": 0.9, "b": 0.1}, expires_ms=99))
    schedulers[0].feed(advised({"b": np.nan, "c": 3.0}, 2, whole=False, expires_ms=99))
    schedulers[0].feed(advised({7: 1.0}, 4, kind="urgency", space=KeySpace.JOBS))
    for event in advice_events(state):
        schedulers[1].feed(event)
    assert state_digest(other) == state_digest(state)
    check_invariants(other)


def test_questions_about_a_job_leave_advice_as_it_was() -> None:
    """The engine is played beyond the expiry on a copy."""
    state, _sink, scheduler = engine(CHEAP, A)
    scheduler.feed(advised({"a": 0.9}, expires_ms=500))
    scheduler.feed(job(1, 4, walltime_ms=1_000))
    scheduler.run(0)
    scheduler.feed(job(2, 4, walltime_ms=1_000))
    scheduler.run(1)
    before = state_digest(state)
    outlook = Prober().look(state, 2, 1)
    assert outlook is not None
    assert outlook.starts_at_ms == 1_000
    assert state_digest(state) == before
    check_invariants(state)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (AdviceUpdated("price", KeySpace.NODES, 2, ("a",), np.zeros(2)), "one float64 for each of its 1 keys"),
        (advised({"a": np.inf}, 2), "finite or NaN"),
        (advised({"a": 1.0}, 2, space=KeySpace.USERS), "has nodes as keys, not users"),
        (advised({"a": 1.0}, kind="third"), "2 kinds of advice are held"),
        (advised(dict.fromkeys("abcdefgh", 1.0), 2), "2 keys of advice are held"),
    ],
)
def test_an_update_that_cannot_be_held_changes_nothing(
    event: AdviceUpdated, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds, keys of another kind, values that are none."""
    monkeypatch.setattr(table, "MAX_KINDS", 2)
    monkeypatch.setattr(table, "MAX_KEYS", 8)
    state, _sink, scheduler = engine(CHEAP, A)
    scheduler.feed(advised({"a": 0.5}))
    scheduler.feed(advised({"a": 0.5}, kind="load"))
    before = state_digest(state)
    with pytest.raises(EngineError, match=message):
        scheduler.feed(event)
    assert state_digest(state) == before
    check_invariants(state)


@pytest.mark.parametrize(
    "info",
    [
        PolicyInfo("test-old", "score/1", reads_advice=("price",)),
        PolicyInfo("test-bad-kind", "score/2", reads_advice=("Price of nodes",)),
        PolicyInfo("test-twice", "score/2", reads_advice=("price", "price")),
        PolicyInfo("test-text", "score/2", reads_advice="price"),  # type: ignore[arg-type]
        PolicyInfo("test-newer", "score/3"),
    ],
)
def test_a_policy_that_declares_what_it_cannot_read_is_refused(info: PolicyInfo) -> None:
    """Version 1 has no advice; kinds are names, each once, in a tuple."""

    class Refused(Cheap):
        pass

    Refused.info = info
    with pytest.raises(EngineError, match=info.name):
        register(Refused())


def test_keys_that_nobody_uses_are_forgotten() -> None:
    """A hundred tables of a thousand other names each leave room for few of them."""
    state = new_state(EngineConfig())
    scheduler = Scheduler(state, Starts())
    for version in range(1, 101):
        scheduler.feed(advised({f"n{version}-{number}": 1.0 for number in range(1_000)}, version))
    names = state.advice.names[KeySpace.NODES]
    assert len(names.slots) <= 4_000
    assert names.uses.shape[0] <= 8_192
    check_invariants(state)


@pytest.mark.parametrize("seed", [*range(25), *(pytest.param(s, marks=pytest.mark.slow) for s in range(25, 150))])
def test_safety_answers_are_those_of_advice_as_it_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes, jobs and advice come, change and go; scores and keys are asked for again a few at a time, and where all
    is done, what is kept is what the policies say now."""
    monkeypatch.setattr(scoring, "SCORES_A_SLICE", 1)
    monkeypatch.setattr(scheduling, "KEYS_A_SLICE", 3)
    AdvisedWorld(seed, check_answers).play()


def test_the_same_events_give_the_same_decisions() -> None:
    """Twice the same site: equal states, equal plans."""
    worlds = [AdvisedWorld(3) for _ in range(2)]
    for world in worlds:
        world.play()
    assert state_digest(worlds[0].state) == state_digest(worlds[1].state)
    assert worlds[0].sink.jobs() == worlds[1].sink.jobs()


@pytest.mark.parametrize("seed", range(20))
def test_safety_what_is_held_is_what_was_put(seed: int) -> None:
    """Against plain dicts: wholes, deltas, parts, withdrawals and expiries of two kinds of jobs and one of nodes, with
    an order that reads one of them."""
    chance = random.Random(seed)
    state, _sink, scheduler = engine(URGENT, A, B)
    spaces = {"urgency": KeySpace.JOBS, "other": KeySpace.JOBS, "price": KeySpace.NODES}
    held: dict[str, dict[Any, float]] = {}
    ends: dict[str, int] = {}
    versions = dict.fromkeys(spaces, 0)
    for now in range(60):
        kind = chance.choice(list(spaces))
        if chance.random() < 0.2:
            scheduler.feed(job(now + 1, 1))
        if chance.random() < 0.1:
            scheduler.feed(AdviceWithdrawn((kind,)))
            held.pop(kind, None)
        else:
            versions[kind] += 1
            whole, expires_ms = chance.random() < 0.4, now + chance.randrange(1, 30)
            keys = range(1, 80) if spaces[kind] is KeySpace.JOBS else "abcdef"
            new = {key: chance.choice((1.0, 2.0, np.nan)) for key in chance.sample(list(keys), 5)}
            some = dict(list(new.items())[:2])
            rest = dict(list(new.items())[2:])
            common: dict[str, Any] = {"kind": kind, "space": spaces[kind], "expires_ms": expires_ms, "whole": whole}
            scheduler.feed(advised(some, versions[kind], more=True, **common))
            scheduler.feed(advised(rest, versions[kind], **common))
            held[kind] = ({} if whole else held.get(kind, {})) | new
            held[kind] = {key: value for key, value in held[kind].items() if not np.isnan(value)}
            ends[kind] = expires_ms
        scheduler.run(now)
        scheduler.feed(ClockAdvanced(now))
        held = {kind: values for kind, values in held.items() if ends[kind] > now}
        assert {kind: dict(state.advice.items(kind)) for kind in state.advice.kinds} == held
        check_invariants(state)
    _check_keys(state, held.get("urgency", {}))


def _check_keys(state: State, urgency: dict[int, float]) -> None:
    """Waiting jobs have the keys that the order gives them now."""
    from hal.core.engine.views import pending
    from hal.core.kernels.structures import layout as L

    waiting = pending(state)["job"].tolist()
    entries = state.work.entries[: int(state.meta[L.M_ENTRY_TOP])]
    keys = {int(entry[L.E_JOB]): int(entry[L.E_KEY]) for entry in entries if entry[L.E_WHERE] != L.WHERE_FREE}
    assert keys == {number: int(-1_000 * urgency.get(number, 0.0)) for number in waiting}
