"""No interleaving of submissions, starts, refusals, moves, failed commits and restarts exceeds a limit of waiting.

What is counted is what the rows of the real store say.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hal.core.model import AttemptState, ConflictError, HALError, from_json, spec_from_plain
from hal.core.model.policy import Account, Limit, Policy, Qos, Queue
from hal.core.model.policy_check import check_policy
from hal.core.model.policy_scope import Ledger, Owner, ledger
from hal.planes.tasks import Arrival, EndedTask, JobPatch, Submitter, TaskPlane, check_table
from hal.store import Group, MemoryDatabase, Store
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepExit, StepStarted, Usage
from tests.planes.tasks.pending_model import PendingModel

USERS = ("ann", "bob")
ACCOUNTS = ("", "org", "ml")
QUEUES = ("default", "short")
QOS = ("", "high")
NODE = "n1"


def policy_of(limits: dict[str, Limit]) -> Policy:
    return check_policy(
        Policy(
            queues={"short": Queue()},
            accounts={"org": Account(), "ml": Account(parent="org")},
            qos={"high": Qos()},
            limits=limits,
        )
    )


scopes = st.sampled_from(
    [
        {},
        {"user": "*"},
        {"user": "ann"},
        {"account": "org"},
        {"account": "*"},
        {"queue": "short"},
        {"qos": "*", "user": "*"},
    ]
)
limits = st.lists(st.tuples(scopes, st.integers(1, 4)), min_size=1, max_size=2).map(
    lambda some: {f"l{n}": Limit(pending=most, **scope) for n, (scope, most) in enumerate(some)}
)
owners = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "account": st.sampled_from(ACCOUNTS),
        "user": st.sampled_from(USERS),
        "qos": st.sampled_from(QOS),
    }
)
fail = st.sampled_from([False, False, False, True])
"""Whether the commit fails."""


class WaitingMachine(RuleBasedStateMachine):
    """Tasks have no retries and no node is lost: nothing comes back by itself but refused starts."""

    @initialize(wanted=limits)
    def open(self, wanted: dict[str, Limit]) -> None:
        self.disk = MemoryDatabase()
        self.now_ms, self.commits = 1_000, 0
        self.allowed: dict[tuple[str, Ledger], int] = {}
        """Of ledgers that held more than a new limit allows when it came: no more than so many."""
        self.start()
        self.plane.record_arrival(Arrival(name=NODE, capacity={"cpu": 64_000}, boot_id="b"), self.now_ms)
        self.plane.change_policy(policy_of(wanted), None, self.now_ms)
        self.commit(fails=False)

    def start(self) -> None:
        self.store = Store.open(self.disk)
        self.epoch = self.store.take_leadership("test", self.now_ms)
        self.engine = PendingModel()
        loaded = self.store.load(in_columns=True)
        policy = from_json(loaded.policy.document, Policy) if loaded.policy else policy_of({})
        self.plane = TaskPlane(policy, self.engine)
        self.plane._table.jobs.max_objects = 0
        for event in self.plane.load(loaded, policy):
            self.engine.apply(event)

    def commit(self, *, fails: bool) -> None:
        change = self.plane.seal(self.now_ms)
        if fails:
            self.plane.undo()
            return
        self.commits += 1
        if not change.empty:
            group = Group(f"{self.epoch}-{self.commits}", self.now_ms, change.operations)
            self.store.commit(group, epoch=self.epoch)
        self.plane.keep()
        for event in change.engine:
            self.engine.apply(event)

    # ── what may happen ───────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        calls=st.lists(
            st.lists(st.tuples(owners, st.integers(1, 3), st.booleans()), min_size=1, max_size=3), max_size=3
        ),
        fails=fail,
    )
    def submit(self, calls: list[list[tuple[dict[str, str], int, bool]]], fails: bool) -> None:
        """Several submissions of one group: each is accepted whole, or refused and leaves nothing."""
        for jobs in calls:
            specs = [spec_from_plain({"command": ["x"], "array": n, "hold": h, **who}) for who, n, h in jobs]
            before = self.plane._table.next_id
            try:
                self.plane.submit(specs, Submitter("root"), self.now_ms)
            except ConflictError:
                assert self.plane._table.next_id == before
        self.commit(fails=fails)

    @rule(data=st.data(), fails=fail)
    def plan(self, data: st.DataObject, fails: bool) -> None:
        ready = sorted(self.engine.pending)
        if not ready:
            return
        chosen = sorted(data.draw(st.sets(st.sampled_from(ready), min_size=1, max_size=4)))
        starts, rows = self.engine.plan(chosen, {job: 1 for job, _ in chosen})
        if not fails:
            self.engine.assume(starts)
        self.plane.allocate(starts, rows, (NODE,).__getitem__, self.epoch, self.now_ms)
        self.commit(fails=fails)

    @rule(data=st.data(), what=st.sampled_from(["start", "refuse", "refuse", "end"]), fails=fail)
    def node(self, data: st.DataObject, what: str, fails: bool) -> None:
        steps = [
            (step, attempt.state)
            for job in self.plane._table.jobs.values()
            for attempt in job.active.values()
            for _, step in attempt.steps_left(job.id)
        ]
        if not steps:
            return
        step, state = data.draw(st.sampled_from(steps))
        if what == "start":
            self.plane.record_starts(NODE, [StepStarted(step, 7, self.now_ms)], self.now_ms)
        elif what == "refuse" and state is AttemptState.ALLOCATED:
            self.plane.record_refusals(NODE, [Refusal(step, "overloaded", "no")], self.now_ms)
        else:
            report = StepExit(step, ExitCause.EXITED, 3, 0, self.now_ms, self.now_ms, Usage(5, 1, 100, 0, 0), "")
            self.plane.record_exits(NODE, [report], self.now_ms)
        self.commit(fails=fails)

    @rule(data=st.data(), what=st.sampled_from(["cancel", "hold", "release", "move", "requeue"]), fails=fail)
    def people(self, data: st.DataObject, what: str, fails: bool) -> None:
        if self.plane._table.next_id == 1:
            return
        job = data.draw(st.integers(1, self.plane._table.next_id - 1))
        by = Submitter("root")
        try:
            if what == "move":
                to = data.draw(owners)
                self.plane.update(
                    job, JobPatch(queue=to["queue"], account=to["account"], qos=to["qos"]), by, self.now_ms
                )
            elif what == "requeue":
                self._requeue(job, by)
            else:
                getattr(self.plane, what)(job, None, by, self.now_ms)
        except HALError:
            pass  # refused: nothing may have changed, which the invariants check
        self.commit(fails=fails)

    def _requeue(self, job: int, by: Submitter) -> None:
        row = self.store.job(job)
        if row is None:
            return
        ended = [
            EndedTask(t.task, t.attempt, t.state, t.exit_code)
            for t in self.store.tasks(job, limit=1_000)
            if t.state.ended and t.attempt
        ]
        if job not in self.plane._table.jobs:
            self.plane.revive(row, self.store.ranges(job))
        self.plane.requeue(job, None, ended, by, self.now_ms)

    @rule(wanted=limits, fails=fail)
    def narrow(self, wanted: dict[str, Limit], fails: bool) -> None:
        """Other limits: what waits stays, and no more comes to it where it exceeds them."""
        self.plane.change_policy(policy_of(wanted), Submitter("root"), self.now_ms)
        self.commit(fails=fails)
        if not fails:
            self.allowed = dict(self.durable_counts())

    @rule()
    def restart(self) -> None:
        """The controller dies and starts again from rows."""
        self.store.close()
        self.start()

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────

    def durable_counts(self) -> Counter[tuple[str, Ledger]]:
        """From the rows alone: who waits in which ledger."""
        loaded = self.store.load()
        policy = self.plane.policy
        counts: Counter[tuple[str, Ledger]] = Counter()
        for row in loaded.jobs:
            owner = Owner(row.queue, row.account, row.user, row.spec.qos)
            unconfirmed = sum(a.state is AttemptState.ALLOCATED for a in loaded.attempts.get(row.id, []))
            for name, limit in policy.limits.items():
                found = ledger(limit, owner, policy.accounts)
                if found is not None:
                    counts[(name, found)] += row.pending + row.held + unconfirmed
        return counts

    @invariant()
    def safety_no_limit_is_exceeded(self) -> None:
        """Nor grows what exceeded a limit when it came."""
        counts = self.durable_counts()
        for key, count in counts.items():
            most = self.plane.policy.limits[key[0]].pending
            assert most is not None
            assert count <= max(most, self.allowed.get(key, 0)), key
        self.allowed = {key: min(was, counts[key]) for key, was in self.allowed.items()}

    @invariant()
    def safety_what_is_counted_is_what_the_rows_say(self) -> None:
        table = self.plane._table
        for (name, found), count in self.durable_counts().items():
            assert table.pending_limits.count(name, found, table.jobs.get) == count
        check_table(table)
        self.engine.check(table)


def lives(count: int) -> settings:
    """So many histories."""
    return settings(max_examples=count, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


WaitingMachine.TestCase.settings = lives(6)
TestWaitingSafety = WaitingMachine.TestCase


@pytest.mark.slow
def test_safety_many_lives_of_what_waits() -> None:
    """The same with more histories."""
    run_state_machine_as_test(WaitingMachine, settings=lives(60))
