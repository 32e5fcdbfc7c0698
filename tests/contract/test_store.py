"""What any store must do, whatever database is below it: groups whole or not at all, in order, and known afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hal.core.model import AttemptState, Event, EventKind, JobSpec, NodeState, Retries, TaskState, check_spec
from hal.store import (
    AppendEvents,
    AppendPolicy,
    AttemptEnd,
    AttemptMark,
    Closure,
    ControllerRow,
    DropForgets,
    DropNodes,
    EditJobs,
    EndAttempts,
    EndFilter,
    ForgetRow,
    GroupRefused,
    InsertAttempts,
    InsertJobs,
    JobEdit,
    JobFilter,
    JobRow,
    MarkAttempts,
    MarkRemoved,
    MemoryDatabase,
    NodeAbout,
    NodeRow,
    Operation,
    PolicyRow,
    ProgressJobs,
    PutForgets,
    PutMeta,
    PutNodes,
    PutReaders,
    PutTaskRanges,
    ReaderRow,
    RememberIdempotent,
    Removed,
    RemoveTasks,
    Retention,
    StaleEpoch,
    StepEnd,
    Store,
    Swept,
    TaskRangeRow,
)
from hal.store.operations import EACH_NODE, Preemption
from hal.store.views import OldAttempt
from tests.postgres_server import PostgresServer
from tests.store.rows import TRUE, Leader, attempt, event, job, progress, submitted

Place = str | Path | MemoryDatabase


@pytest.fixture(params=["file", "memory", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store lies: a file, a database in memory, or one of a PostgreSQL server."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.emptied()
    return tmp_path / "hal.sqlite" if request.param == "file" else MemoryDatabase()


@pytest.fixture
def leader(place: Place) -> Iterator[Leader]:
    """A new store with a leader."""
    store = Store.open(place)
    yield Leader(store)
    store.close()


ABOUT = NodeAbout(closures=(Closure(source="person", reason="new disk", by="alice", since_ms=5, drain=True),))
"""What is kept of a node beside its columns."""


def test_a_node_that_is_dropped_is_forgotten(leader: Leader) -> None:
    """The other stays; dropping one that is not there changes nothing."""
    leader.commit(PutNodes([NodeRow("n1", {}), NodeRow("n2", {})]))
    leader.commit(DropNodes(["n1", "n9"]))
    assert [row.name for row in leader.store.nodes()] == ["n2"]


def test_a_fact_is_replaced_and_forgotten(leader: Leader) -> None:
    """None takes it away; others stay."""
    leader.commit(PutMeta({"a": "1", "b": "2"}))
    leader.commit(PutMeta({"a": None, "b": "3", "c": None}))
    assert [leader.store.meta(key) for key in "abc"] == [None, "3", None]


def test_controllers_tell_of_themselves(leader: Leader) -> None:
    """Each has one row, the newest that it told, until it leaves; a backup of long ago has none that is there."""
    store = leader.store
    for row in (ControllerRow(id="b"), ControllerRow(id="a", pid=3), ControllerRow(id="a", pid=4, epoch=1)):
        store.announce(row)
    assert [(row.id, row.pid, row.epoch) for row in store.controllers()] == [("a", 4, 1), ("b", 0, 0)]
    store.forget_controller("a")
    assert [row.id for row in store.controllers()] == ["b"]


def test_a_fact_that_is_claimed_is_said_once(leader: Leader) -> None:
    """Who comes second is told what the first one said."""
    assert [leader.store.claim_fact("who", said) for said in ("me", "you", "me")] == ["me", "me", "me"]
    leader.commit(PutMeta({"token/1": "a", "token_2": "b"}))
    assert leader.store.facts("token/") == {"token/1": "a"}


def test_a_new_store_is_empty(leader: Leader) -> None:
    """Nothing is in it, and time and sequence begin at nothing."""
    loaded = leader.store.load()
    assert (loaded.epoch, loaded.last_seq, loaded.last_job_id, loaded.now_ms) == (1, 0, 0, 0)
    assert (loaded.jobs, loaded.nodes, loaded.policy) == ([], [], None)
    assert leader.store.jobs() == []
    assert leader.store.counts() == {}
    assert leader.store.job(1) is None
    assert leader.store.events() == []


def test_what_was_committed_is_what_is_loaded(leader: Leader, place: Place) -> None:
    """Rows come back equal, after the store was closed and opened again."""
    spec = check_spec(JobSpec(command=("echo", "ä€\u0001"), labels={"team": "x"}, retries=Retries(max=2)))
    rows = [job(1, spec=spec), job(2, tasks=1_000, hold=True, held=1_000, pending=0, trace_id="t", reason="why")]
    ranges = [
        TaskRangeRow(1, 0, 1, TaskState.PENDING),
        TaskRangeRow(2, 0, 10, TaskState.HELD, attempt=3, retries=1, eligible_ms=5, reason="r"),
        TaskRangeRow(2, 10, 989, TaskState.CANCELLED),
    ]
    ended = (StepEnd(0, "exited", 1, 0, 9, "m", {"user_ms": 3}),)
    active = attempt(
        2, 999, 4, state=AttemptState.RUNNING, nodes=("n1", "n2"), retries=2, started_ms=3, cause="x", steps=ended
    )
    node = NodeRow("n1", {"cpu": 4_000}, {"rack": "r1"}, NodeState.CORDONED, "boot", "why", 77, ("no cgroups",), ABOUT)
    policy = PolicyRow(version=1, at_ms=4_000, user="alice", note="because", document='{"queues":{}}')
    leader.commit(
        InsertJobs(rows),
        PutTaskRanges(put=ranges),
        InsertAttempts([active]),
        PutNodes([node]),
        AppendPolicy(policy),
        PutMeta({"k": "v"}),
        AppendEvents([event(EventKind.JOBS_SUBMITTED, [1, 2])]),
        now_ms=5_000,
    )
    leader.store.close()
    again = Store.open(place)
    loaded = again.load()
    assert loaded.jobs == rows
    assert loaded.ranges == {1: ranges[:1], 2: ranges[1:]}
    assert loaded.attempts == {2: [active]}
    assert (loaded.nodes, loaded.policy, loaded.meta) == ([node], policy, {"k": "v"})
    assert (loaded.epoch, loaded.last_seq, loaded.last_job_id, loaded.now_ms) == (1, 1, 2, 5_000)
    assert (again.nodes(), again.policy(), again.meta("k"), again.meta("x")) == ([node], policy, "v", None)
    again.close()


def test_versions_of_the_policy_are_kept_up_to_the_bound(leader: Leader) -> None:
    """The newest holds and always stays; older ones are listed newest first, page by page, and read by number."""
    for version in range(1, 8):
        leader.commit(AppendPolicy(PolicyRow(version=version, at_ms=version, user="u", document=f"{version}")))
    store = leader.store
    assert [row.version for row in store.policies(limit=3)] == [7, 6, 5]
    assert [row.version for row in store.policies(before=5, limit=3)] == [4, 3, 2]
    assert {row.document for row in store.policies()} == {""}
    found = store.policy(2)
    assert found is not None
    assert (found.document, store.policy(9)) == ("2", None)
    assert store.trim(0, Retention(policies_count=2), epoch=leader.epoch).policies == 5
    assert [row.version for row in store.policies()] == [7, 6]
    assert store.trim(0, Retention(policies_count=0), epoch=leader.epoch).policies == 1
    newest = store.load().policy
    assert newest is not None
    assert newest.document == "7"


def test_a_group_that_contradicts_the_store_leaves_nothing_behind(leader: Leader) -> None:
    """The last of its operations fails: rows, events and commit id of all before it are gone."""
    leader.commit(*submitted(job(1)))
    group = leader.group(*submitted(job(2)), EndAttempts([AttemptEnd(1, 0, 1, AttemptState.SUCCEEDED, 9)]))
    with pytest.raises(GroupRefused, match=r"attempt 1\.0\.1"):
        leader.store.commit(group, epoch=leader.epoch)
    assert leader.store.job(2) is None
    assert [e.sequence for e in leader.store.events()] == [1]
    assert not leader.store.commit_known(group.commit_id)
    assert leader.commit(*submitted(job(2))).first_seq == 2


@pytest.mark.parametrize(
    ("operation", "names"),
    [
        (InsertJobs([job(1)]), "contradicts what is stored"),
        (InsertJobs([job(5), job(5)]), "contradicts what is stored"),
        (ProgressJobs([progress(job(7))]), "job 7"),
        (EditJobs([JobEdit(id=7, name="x")]), "job 7"),
        (PutTaskRanges(drop=[(1, 5)]), "the range of job 1 at task 5"),
        (PutTaskRanges(put=[TaskRangeRow(7, 0, 1, TaskState.PENDING)]), "contradicts what is stored"),
        (InsertAttempts([attempt(1)]), "contradicts what is stored"),
        (InsertAttempts([attempt(7)]), "contradicts what is stored"),
        (MarkAttempts([AttemptMark(1, 5, 1, AttemptState.RUNNING)]), r"attempt 1\.5\.1"),
        (EndAttempts([AttemptEnd(1, 5, 1, AttemptState.FAILED, 9)]), r"attempt 1\.5\.1"),
        (EndAttempts([AttemptEnd(1, 0, 1, AttemptState.FAILED, 9)] * 2), r"1\.0\.1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_operation_on_what_is_not_there_is_refused(leader: Leader, operation: Operation, names: str) -> None:
    """A row twice, an update of a row that is missing, a range of an unknown job: a fault, and the error names it."""
    leader.commit(*submitted(job(1)), PutTaskRanges(drop=[(1, 0)]), InsertAttempts([attempt(1)]))
    before = leader.store.load()
    with pytest.raises(GroupRefused, match=names):
        leader.commit(operation, AppendEvents([event(EventKind.JOBS_CHANGED, [1])]))
    assert leader.store.load() == before


@pytest.mark.parametrize("columns", [{"reason": "\udc80"}, {"name": "\ud800"}, {"submit_ms": 1 << 63}])
def test_a_value_that_no_database_holds_is_refused(leader: Leader, columns: dict[str, Any]) -> None:
    """Text that is not Unicode, numbers beyond 64 bits: the group is refused whole, the store goes on."""
    with pytest.raises(GroupRefused, match="cannot be stored"):
        leader.commit(*submitted(job(1)), InsertJobs([job(2, **columns)]))
    with pytest.raises(GroupRefused, match="cannot be stored"):
        leader.commit(AppendEvents([event(EventKind.JOBS_HELD, [1], payload={"why": "\udc80"})]))
    assert leader.store.load().jobs == []
    assert leader.commit(*submitted(job(1, reason="NUL \0 and 𝄞"))).first_seq == 1
    # PostgreSQL's text has no NUL.
    assert leader.store.load().jobs[0].reason in ("NUL \0 and 𝄞", "NUL \ufffd and 𝄞")


def test_an_attempt_ends_once(leader: Leader) -> None:
    """A late report about an attempt that has ended is refused, not written over its end."""
    leader.commit(*submitted(job(1)), InsertAttempts([attempt(1)]))
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.LOST, 9)]))
    with pytest.raises(GroupRefused, match="have ended"):
        leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.SUCCEEDED, 10)]))
    with pytest.raises(GroupRefused, match="have ended"):
        leader.commit(MarkAttempts([AttemptMark(1, 0, 1, AttemptState.RUNNING)]))
    assert leader.store.attempts(1)[0].state is AttemptState.LOST


def test_marks_and_ends_keep_what_they_do_not_say(leader: Leader) -> None:
    """None leaves start, steps and cause as they are; everything else is set."""
    leader.commit(*submitted(job(1)), InsertAttempts([attempt(1)]))
    steps = (StepEnd(0, "exited", 0, 0, 9),)
    leader.commit(MarkAttempts([AttemptMark(1, 0, 1, AttemptState.RUNNING, started_ms=5, steps=steps)]))
    leader.commit(MarkAttempts([AttemptMark(1, 0, 1, AttemptState.FINALISING, cause="cancelled")]))
    row = leader.store.attempts(1)[0]
    assert (row.state, row.started_ms, row.steps, row.cause) == (AttemptState.FINALISING, 5, steps, "cancelled")
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.FAILED, 11, "exited", 3, 0, {"rss": 1}, "no")]))
    assert leader.store.attempts(1) == [
        attempt(
            1,
            state=AttemptState.FAILED,
            started_ms=5,
            ended_ms=11,
            cause="exited",
            exit_code=3,
            signal=0,
            usage={"rss": 1},
            message="no",
            steps=steps,
        )
    ]


def test_safety_sequence_numbers_have_no_gap_and_no_reuse(leader: Leader, place: Place) -> None:
    """Over failed groups, groups without events, trimming of everything, and a new leader."""
    first = leader.commit(*submitted(job(1)))
    assert (first.first_seq, first.last_seq) == (1, 1)
    two = AppendEvents([event(EventKind.JOBS_HELD, [1]), event(EventKind.JOBS_RELEASED, [1])])
    with pytest.raises(GroupRefused):
        leader.commit(two, InsertJobs([job(1)]))
    assert (leader.commit(two).first_seq, leader.store.last_seq()) == (2, 3)
    nothing = leader.commit(PutMeta({"a": "b"}))
    assert (nothing.first_seq, nothing.last_seq) == (4, 3)
    leader.store.trim(10**15, Retention(events_count=0, commits_count=0), epoch=leader.epoch)
    assert (leader.store.events(), leader.store.first_seq(), leader.store.last_seq()) == ([], 0, 3)
    leader.store.resign(leader.epoch)
    leader.store.close()
    taken = Leader(Store.open(place))
    assert (taken.epoch, taken.commit(two).first_seq) == (2, 4)
    taken.store.close()


def test_a_commit_is_known_and_is_not_done_twice(leader: Leader) -> None:
    """A group whose outcome was in doubt may be sent again: the first one counts."""
    group = leader.group(*submitted(job(1)))
    assert not leader.store.commit_known(group.commit_id)
    done = leader.store.commit(group, epoch=leader.epoch)
    assert leader.store.commit_known(group.commit_id)
    assert leader.store.commit(group, epoch=leader.epoch) == done
    assert leader.store.last_seq() == 1


def test_safety_a_former_leader_cannot_write(leader: Leader) -> None:
    """The epoch is read inside the transaction: nothing of a stale leader's group is written."""
    old = leader.epoch
    leader.store.resign(old)
    new = leader.store.take_leadership("controller pid 7", 2)
    assert new == old + 1
    with pytest.raises(StaleEpoch, match=f"epoch {old} has ended: the store has epoch {new}, held by controller pid 7"):
        leader.commit(*submitted(job(1)))
    with pytest.raises(StaleEpoch):
        leader.store.trim(1, Retention(), epoch=old)
    assert leader.store.job(1) is None
    leader.epoch = new
    leader.commit(*submitted(job(1)))


def test_time_does_not_go_back_across_restarts(leader: Leader) -> None:
    """A clock that was set back does not lower the instant from which the next leader goes on."""
    leader.commit(PutMeta({}), now_ms=9_000)
    leader.commit(PutMeta({}), now_ms=4_000)
    assert leader.store.load().now_ms == 9_000


def test_events_come_in_commit_order_with_everything_they_hold(leader: Leader) -> None:
    """Resources and nested tables in a payload are plain data when read."""
    payload = {"a": [1, {"b": None}], "text": "ä"}
    leader.commit(
        AppendEvents(
            [
                event(EventKind.NODE_JOINED, at_ms=7, cause="node:n1", trace_id="t", payload=payload),
                event(EventKind.JOBS_HELD, [3, 1, 2, 2, 9]),
            ]
        )
    )
    assert leader.store.events() == [
        Event(sequence=1, at_ms=7, kind=EventKind.NODE_JOINED, cause="node:n1", trace_id="t", payload=payload),
        Event(sequence=2, at_ms=1_000, kind=EventKind.JOBS_HELD, jobs=(1, 2, 3, 9)),
    ]
    assert [e.sequence for e in leader.store.events(1)] == [2]
    assert [e.sequence for e in leader.store.events(limit=1)] == [1]
    assert leader.store.events(2) == []


def test_events_are_found_by_any_of_their_jobs(leader: Leader) -> None:
    """Also by one beyond those that a block lists; not by one that lies between."""
    jobs = [*range(1, 5_000), *range(6_000, 6_010)]
    leader.commit(AppendEvents([event(EventKind.JOBS_HELD, jobs), event(EventKind.JOBS_RELEASED, [5_500])]))
    found = leader.store.events(job=6_009)
    assert [e.sequence for e in found] == [1]
    assert len(found[0].jobs) == 1_000
    assert found[0].payload == {"jobs_total": 5_009, "truncated": True}
    assert [e.sequence for e in leader.store.events(job=5_500)] == [2]
    assert leader.store.events(job=5_400) == []
    assert leader.store.events(1, job=1) == []


def test_the_first_answer_to_an_idempotency_key_stays(leader: Leader) -> None:
    """Two requests with one key in one group do not undo each other's group."""
    assert leader.store.idempotent("k") is None
    leader.commit(RememberIdempotent("k", "f1", b"one"), RememberIdempotent("k", "f2", b"two"), now_ms=50)
    leader.commit(RememberIdempotent("k", "f3", b"three"))
    remembered = leader.store.idempotent("k")
    assert remembered is not None
    assert (remembered.fingerprint, remembered.response, remembered.at_ms) == ("f1", b"one", 50)


def test_retention_keeps_the_newest(leader: Leader) -> None:
    """By count, by age, and keys by age; the feed has no hole and reading goes on where it was."""
    for number in range(10):
        leader.commit(
            AppendEvents([event(EventKind.JOBS_HELD, [1], at_ms=number * 100)]),
            RememberIdempotent(f"k{number}", "f", b""),
            now_ms=number * 100,
        )
    kept = Retention(events_ms=10_000, events_count=8, commits_count=3, idempotency_ms=450)
    done = leader.store.trim(900, kept, epoch=leader.epoch)
    assert (done.events, done.commits, done.keys, done.more) == (2, 7, 5, False)  # keys of 0 … 400 ms
    assert [e.sequence for e in leader.store.events()] == [3, 4, 5, 6, 7, 8, 9, 10]
    leader.store.trim(900, Retention(events_ms=450), epoch=leader.epoch)
    assert [e.sequence for e in leader.store.events()] == [6, 7, 8, 9, 10]  # those of 500 … 900 ms
    assert leader.store.first_seq() == 6
    assert leader.store.idempotent("k4") is None
    assert leader.store.idempotent("k5") is not None


def ended(number: int, end_ms: int, **columns: Any) -> JobRow:
    """A job that succeeded."""
    return job(number, state=TaskState.SUCCEEDED, **{"pending": 0, "succeeded": 1, "end_ms": end_ms, **columns})


def test_a_removed_job_is_not_seen_and_swept_with_all_that_is_of_it(leader: Leader) -> None:
    """Its neighbour keeps the spec that both share; the newest job's row stays, so that no id is given twice."""
    store = leader.store
    labelled = check_spec(JobSpec(command=("true",), labels={"a": "b"}))
    leader.commit(InsertJobs([ended(1, 10), ended(2, 20), ended(3, 30, spec=labelled)]))
    leader.commit(InsertAttempts([attempt(n, state=AttemptState.SUCCEEDED, ended_ms=9) for n in (1, 2, 3)]))
    leader.commit(MarkRemoved([1, 3], Removed.JOB))
    assert [store.job(number) is None for number in (1, 2, 3)] == [True, False, True]
    assert [row.id for row in store.jobs()] == [2]
    assert store.sweep(50, Retention(), epoch=leader.epoch) == Swept(jobs=1, attempts=1, more=False)
    assert [len(store.attempts(number)) for number in (1, 2, 3)] == [0, 1, 1]
    assert store.load().last_job_id == 3
    leader.commit(InsertJobs([job(4)]))
    assert store.sweep(50, Retention(), epoch=leader.epoch) == Swept(jobs=1, attempts=1, more=False)
    assert store.jobs(JobFilter(labels={"a": "b"})) == []
    assert store.job(2) == ended(2, 20)


def test_only_ended_jobs_are_removed_and_one_that_runs_again_has_lost_nothing(leader: Leader) -> None:
    """A mark passes a live job by; progress takes the mark away."""
    leader.commit(InsertJobs([ended(1, 10), job(2)]))
    leader.commit(MarkRemoved([1, 2], Removed.OUTPUTS))
    assert [row.removed for row in leader.store.jobs(newest_first=False)] == [Removed.OUTPUTS, Removed.NOTHING]
    leader.commit(ProgressJobs([progress(job(1))]))
    assert leader.store.jobs(newest_first=False)[0].removed == Removed.NOTHING


def test_when_and_why_outputs_were_removed_is_known_until_the_job_is_gone(leader: Leader) -> None:
    """Also after it has run again; of a job of which nothing was removed there is nothing to know."""
    store = leader.store
    leader.commit(InsertJobs([ended(1, 10), ended(2, 20), job(3)]))
    leader.commit(MarkRemoved([1], Removed.OUTPUTS, "outputs_days = 90, queue default"))
    leader.commit(ProgressJobs([progress(job(1))]))
    found = store.removal(1)
    assert (found is not None and found.rule, store.removal(2)) == ("outputs_days = 90, queue default", None)
    leader.commit(ProgressJobs([progress(ended(1, 30))]))
    leader.commit(MarkRemoved([1], Removed.ATTEMPTS_GOING, "attempts_count = 5"))
    again = store.removal(1)
    assert again is not None
    assert again.rule == "attempts_count = 5"
    leader.commit(MarkRemoved([1], Removed.JOB))
    store.sweep(50, Retention(), epoch=leader.epoch)
    assert store.removal(1) is None


def test_of_a_task_with_many_attempts_the_newest_stay_and_those_that_a_reader_needs(leader: Leader) -> None:
    """Attempts 1 to 15 of task 0, of which the reader has read the ends of two; task 1 has had one."""
    store, retention = leader.store, Retention(attempts_per_task=10)
    leader.commit(*submitted(job(1, tasks=2)))
    for number in range(1, 16):
        leader.commit(InsertAttempts([attempt(1, number=number)]))
        leader.commit(EndAttempts([AttemptEnd(1, 0, number, AttemptState.PREEMPTED, number, "requeued")]))
    registered = ReaderRow(name="a", user="u", created_ms=1, heard_ms=20, attempts=2)
    leader.commit(InsertAttempts([attempt(1, task=1)]), PutReaders((registered,)))
    found, after = store.old_attempts(20, retention, (0, 0))
    assert ([(one.task, one.attempt, one.nodes) for one in found], after) == ([(0, 1, ("n1",)), (0, 2, ("n1",))], None)
    leader.commit(PutReaders((), ("a",)))
    found, _ = store.old_attempts(20, retention, (0, 0))
    store.delete_attempts(found, epoch=leader.epoch)
    assert [(one.task, one.attempt) for one in store.attempts(1)] == [*((0, n) for n in range(6, 16)), (1, 1)]
    assert store.old_attempts(20, retention, (0, 0)) == ([], None)


def test_a_large_array_is_swept_a_piece_at_a_time(leader: Leader) -> None:
    """1,200 attempts: 500, 500, 200 and the job."""
    leader.commit(InsertJobs([ended(1, 10, tasks=1_200), job(2)]))
    leader.commit(InsertAttempts([attempt(1, task, state=AttemptState.SUCCEEDED, ended_ms=9) for task in range(1_200)]))
    leader.commit(MarkRemoved([1], Removed.JOB))
    swept = [leader.store.sweep(50, Retention(), epoch=leader.epoch) for _ in range(4)]
    assert swept == [Swept(0, 500, True), Swept(0, 500, True), Swept(1, 200, False), Swept(0, 0, False)]


def test_a_gang_is_swept_a_piece_of_its_nodes_at_a_time(leader: Leader) -> None:
    """1,201 nodes, of which the attempt itself names the first: 500, 500, then 200, the attempt and the job."""
    names = tuple(f"n{number:04}" for number in range(1_201))
    leader.commit(InsertJobs([ended(1, 10), job(2)]), InsertAttempts([attempt(1, nodes=names)]))
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.SUCCEEDED, 9, more_nodes=names[1:])]))
    leader.commit(MarkRemoved([1], Removed.JOB))
    swept = [leader.store.sweep(50, Retention(), epoch=leader.epoch) for _ in range(4)]
    assert swept == [Swept(0, 0, True), Swept(0, 0, True), Swept(1, 1, False), Swept(0, 0, False)]


def test_an_old_attempt_of_a_gang_goes_a_piece_of_its_nodes_at_a_time(leader: Leader) -> None:
    """700 nodes, of which the attempt itself names the first: 500, then 199 and the attempt."""
    names = tuple(f"n{number:03}" for number in range(700))
    leader.commit(*submitted(job(1)), InsertAttempts([attempt(1, nodes=names)]))
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.PREEMPTED, 9, more_nodes=names[1:])]))
    old = [OldAttempt(1, 0, 1, names)]
    assert [leader.store.delete_attempts(old, epoch=leader.epoch) for _ in range(2)] == [True, False]
    assert leader.store.attempts(1) == []


def test_a_job_is_not_swept_until_all_its_nodes_are_named(leader: Leader) -> None:
    """The group that marks it says so; another says that it is done. No node is called so."""
    leader.commit(InsertJobs([ended(1, 10), job(2)]), InsertAttempts([attempt(1, ended_ms=9)]))
    leader.commit(MarkRemoved([1], Removed.JOB), PutForgets([ForgetRow(EACH_NODE, 1)]))
    assert leader.store.sweep(50, Retention(), epoch=leader.epoch) == Swept(0, 0, False)
    assert (leader.store.forgets_left(), leader.store.forget_counts()) == ([1], {})
    leader.commit(PutForgets([ForgetRow("n1", 1)]), DropForgets([ForgetRow(EACH_NODE, 1)]))
    assert leader.store.sweep(50, Retention(), epoch=leader.epoch) == Swept(1, 1, False)
    assert (leader.store.forgets_left(), leader.store.forget_counts()) == ([], {"n1": 1})


def test_what_a_registered_reader_has_not_read_is_not_swept(leader: Leader) -> None:
    """Both jobs are removed: the one whose end was read goes at once, the other when that was read, too."""
    leader.commit(InsertJobs([job(1), job(2), job(3)]), InsertAttempts([attempt(1), attempt(2)]))
    for number in (1, 2):
        end = AttemptEnd(number, 0, 1, AttemptState.SUCCEEDED, number * 10_000, "exited", 0)
        over = progress(job(number), state=TaskState.SUCCEEDED, pending=0, succeeded=1, end_ms=number * 10_000)
        leader.commit(EndAttempts([end]), ProgressJobs([over]), now_ms=number * 10_000)
    store, kept = leader.store, Retention()
    leader.commit(PutReaders((_reader(1),)), MarkRemoved([1, 2], Removed.JOB), now_ms=30_000)
    assert store.needed_since(30_000, kept) == 20_000
    assert store.sweep(30_000, kept, epoch=leader.epoch) == Swept(jobs=1, attempts=1, more=False)
    assert [row.job for row in store.ended(1, last=2).rows] == ["2"]
    leader.commit(PutReaders((_reader(2),)), now_ms=30_000)
    assert store.sweep(30_000, kept, epoch=leader.epoch) == Swept(jobs=1, attempts=1, more=False)


def _reader(attempts: int) -> ReaderRow:
    return ReaderRow(name="r", user="alice", created_ms=1, heard_ms=1, attempts=attempts)


def ended_array(leader: Leader) -> JobRow:
    """Job 1: tasks 0-3 succeeded, 4 and 5 failed (4 at its second attempt), 6-9 were cancelled before they ran."""
    row = job(1, tasks=10, state=TaskState.FAILED, pending=0, succeeded=4, failed=2, cancelled=4, end_ms=900)
    leader.commit(InsertJobs([replace(row, end_ms=None), job(2)]))
    tries = [*((task, 1) for task in range(6)), (4, 2)]
    leader.commit(InsertAttempts([attempt(1, task, number) for task, number in tries]))
    ends = [AttemptState.SUCCEEDED if task < 4 else AttemptState.FAILED for task, _ in tries]
    leader.commit(EndAttempts([AttemptEnd(1, *one, state, 800) for one, state in zip(tries, ends, strict=True)]))
    leader.commit(PutTaskRanges(put=[TaskRangeRow(1, 6, 4, TaskState.CANCELLED)]), ProgressJobs([progress(row)]))
    return row


def test_removed_tasks_are_seen_by_nobody_and_their_attempts_go(leader: Leader) -> None:
    """Of tasks 1, 4, 7 and 8: one succeeded, one failed, two were cancelled. The others stay as they were."""
    row, store = ended_array(leader), leader.store
    assert store.task_runs(1, 1, 9) == {
        TaskState.SUCCEEDED: [(1, 4)],
        TaskState.FAILED: [(4, 6)],
        TaskState.CANCELLED: [(6, 9)],
    }
    gone = ((1, 2), (4, 5), (7, 9))
    leader.commit(RemoveTasks(1, 900, gone, succeeded=1, failed=1, cancelled=2))
    assert [task.task for task in store.tasks(1)] == [0, 2, 3, 5, 6, 9]
    assert [task.task for task in store.tasks(1, after=5, limit=2)] == [6, 9]
    assert [store.task(1, number) is None for number in (1, 2, 4, 8, 9)] == [True, False, True, True, False]
    assert [task.task for task in store.tasks(1, [TaskState.FAILED])] == [5]
    found = store.job(1)
    assert found == replace(row, succeeded=3, failed=1, cancelled=2, version=3)
    assert (found.removed_tasks, store.tasks_removed(1)) == (4, list(gone))
    assert store.task_runs(1, 0, 10) == {
        TaskState.SUCCEEDED: [(0, 1), (2, 4)],
        TaskState.FAILED: [(5, 6)],
        TaskState.CANCELLED: [(6, 7), (9, 10)],
    }
    going = store.going_attempts(1_000, Retention())
    assert going == [OldAttempt(1, task, number, ("n1",)) for task, number in ((1, 1), (4, 1), (4, 2))]
    assert not store.delete_going(going, epoch=leader.epoch)
    assert store.going_attempts(1_000, Retention()) is None
    assert [(one.task, one.attempt) for one in store.attempts(1)] == [(0, 1), (2, 1), (3, 1), (5, 1)]


def test_tasks_of_a_job_that_has_run_again_are_not_removed(leader: Leader) -> None:
    """It ended at 900, not at 800."""
    row = ended_array(leader)
    leader.commit(RemoveTasks(1, 800, ((0, 1),), succeeded=1))
    assert (leader.store.job(1), leader.store.tasks_removed(1)) == (replace(row, version=2), [])


def test_what_a_reader_has_not_read_of_removed_tasks_stays(leader: Leader) -> None:
    """Ends 1 to 7; it has read 5: tasks 0 to 4 at their first attempts."""
    ended_array(leader)
    leader.commit(PutReaders((_reader(5),)), RemoveTasks(1, 900, ((4, 6),), failed=2))
    going = leader.store.going_attempts(1_000, Retention())
    assert going == [OldAttempt(1, 4, 1, ("n1",))]
    leader.store.delete_going(going, epoch=leader.epoch)
    assert leader.store.going_attempts(1_000, Retention()) == []
    leader.commit(PutReaders((_reader(7),)))
    left = leader.store.going_attempts(1_000, Retention())
    assert left == [OldAttempt(1, 4, 2, ("n1",)), OldAttempt(1, 5, 1, ("n1",))]


def test_a_job_goes_with_the_record_of_its_removed_tasks(leader: Leader) -> None:
    """As if it had never been."""
    ended_array(leader)
    leader.commit(RemoveTasks(1, 900, ((0, 1), (6, 10)), succeeded=1, cancelled=4))
    leader.commit(MarkRemoved([1], Removed.JOB))
    assert leader.store.sweep(1_000, Retention(), epoch=leader.epoch) == Swept(jobs=1, attempts=7, more=False)
    assert (leader.store.job(1), leader.store.tasks_removed(1)) == (None, [])


def test_attempts_go_and_the_job_stays(leader: Leader) -> None:
    """The row says so when the last of them is deleted."""
    leader.commit(InsertJobs([ended(1, 10), ended(2, 20)]))
    leader.commit(InsertAttempts([attempt(n, state=AttemptState.SUCCEEDED, ended_ms=9) for n in (1, 2)]))
    leader.commit(MarkRemoved([1], Removed.ATTEMPTS_GOING))
    assert leader.store.sweep(50, Retention(), epoch=leader.epoch) == Swept(jobs=0, attempts=1, more=False)
    assert [row.removed for row in leader.store.jobs()] == [Removed.NOTHING, Removed.ATTEMPTS]
    assert [len(leader.store.attempts(number)) for number in (1, 2)] == [0, 1]


def test_the_oldest_jobs_of_a_queue_are_found_by_their_end(leader: Leader) -> None:
    """In pages, whatever was removed of them before; live jobs and other queues do not count."""
    rows = [ended(1, 50, tasks=7), ended(2, 10), ended(3, 30), ended(4, 20, queue="short"), job(5)]
    leader.commit(InsertJobs(rows))
    leader.commit(MarkRemoved([3], Removed.OUTPUTS))
    store = leader.store
    assert store.ended_queues() == ["default", "short"]
    assert store.weigh_ended("default", Removed.JOB) == (3, 9)
    assert store.weigh_ended("default", Removed.OUTPUTS) == (2, 8)
    first = store.oldest_ended("default", Removed.JOB, limit=2)
    assert [(one.id, one.end_ms) for one in first] == [(2, 10), (3, 30)]
    rest = store.oldest_ended("default", Removed.JOB, after=(30, 3), limit=2)
    assert [(one.id, one.tasks) for one in rest] == [(1, 7)]


def test_what_nodes_must_delete_is_named_in_few_pieces(leader: Leader) -> None:
    """Three tasks on two nodes, one of them twice: two pieces for each node; the whole job is one."""
    leader.commit(InsertJobs([ended(1, 10, tasks=3)]))
    leader.commit(
        InsertAttempts(
            [attempt(1, 0), attempt(1, 1, nodes=("n2",)), attempt(1, 2), attempt(1, 1, 2, nodes=("n1", "n2"))]
        )
    )
    pieces = [ForgetRow(node, 1, *piece) for node in ("n1", "n2") for piece in ((1, 0, 3), (2, 1, 1))]
    assert sorted(leader.store.forgets_for([1], whole=False)) == pieces
    assert leader.store.forgets_for([1], whole=True) == [ForgetRow("n1", 1), ForgetRow("n2", 1)]


def test_what_a_node_must_delete_stays_until_it_has_or_is_removed(leader: Leader) -> None:
    """The same twice is one row; each node has its own."""
    rows = [ForgetRow("n1", 1), ForgetRow("n1", 2, 1, 0, 5), ForgetRow("n2", 1)]
    leader.commit(PutForgets(rows), PutForgets(rows[:1]), PutNodes([NodeRow("n2", {})]))
    assert leader.store.forget_counts() == {"n1": 2, "n2": 1}
    assert leader.store.forgets("n1", limit=1) == rows[:1]
    leader.commit(DropForgets(rows[:1]))
    leader.commit(DropNodes(["n2"]))
    assert leader.store.forget_counts() == {"n1": 1}


@pytest.mark.parametrize("counts", [(10, 1), (1, 10)])
def test_what_a_node_must_delete_never_becomes_less(leader: Leader, counts: tuple[int, int]) -> None:
    """Tasks 0 to 9 and task 0 alone, in either order, also in one operation: all ten."""
    apart, together = ([ForgetRow("n1", job, 1, 0, count) for count in counts] for job in (1, 2))
    for row in apart:
        leader.commit(PutForgets([row]))
    leader.commit(PutForgets(together))
    assert leader.store.forgets("n1", limit=9) == [ForgetRow("n1", 1, 1, 0, 10), ForgetRow("n1", 2, 1, 0, 10)]


def test_who_evicted_an_attempt_stays_with_it_when_it_ends_in_the_same_group(leader: Leader) -> None:
    """Marked and ended at once: the end says nothing of it, and erases nothing."""
    leader.commit(*submitted(job(1)), InsertAttempts([attempt(1)]))
    evicted = Preemption(mode="requeue", at_ms=5, due_ms=9, by="bob", reason="new disk")
    mark = AttemptMark(1, 0, 1, AttemptState.FINALISING, cause="preempted", preemption=evicted)
    leader.commit(MarkAttempts([mark]), EndAttempts([AttemptEnd(1, 0, 1, AttemptState.PREEMPTED, 9)]))
    (row,) = leader.store.attempts(1)
    assert (row.state, row.preemption) == (AttemptState.PREEMPTED, evicted)


def test_progress_and_edits_change_what_they_name(leader: Leader) -> None:
    """Each change raises the version; an edit leaves unset columns alone and gives the job a spec of its own."""
    leader.commit(*submitted(job(1), job(2)))
    leader.commit(ProgressJobs([progress(job(1), state=TaskState.RUNNING, start_ms=5, pending=0, active=1, running=1)]))
    spec = check_spec(JobSpec(command=("true",), name="new", labels={"a": "b"}))
    leader.commit(
        EditJobs([JobEdit(id=1, spec=spec, name="new", priority=7), JobEdit(id=2, walltime_ms=9, hold=True)]),
        EditJobs([JobEdit(id=2, walltime_ms=None, queue="q", account="a", user="u")]),
    )
    assert leader.store.job(1) == job(
        1,
        spec=spec,
        name="new",
        priority=7,
        state=TaskState.RUNNING,
        start_ms=5,
        pending=0,
        active=1,
        running=1,
        version=3,
    )
    assert leader.store.job(2) == job(2, hold=True, queue="q", account="a", user="u", version=3)
    assert [row.id for row in leader.store.jobs(JobFilter(labels={"a": "b"}))] == [1]
    leader.commit(EditJobs([JobEdit(id=1, spec=TRUE)]))
    assert leader.store.jobs(JobFilter(labels={"a": ""})) == []


def test_a_store_that_was_killed_between_groups_has_the_first_and_not_the_second(place: Place) -> None:
    """What was being written is rolled back when the database is opened again."""
    first = Leader(Store.open(place))
    first.commit(*submitted(job(1)))
    if isinstance(place, MemoryDatabase):
        place.connection.execute("BEGIN IMMEDIATE")
        place.connection.execute("DELETE FROM task_spans")
    else:
        first.store.close()
    again = Store.open(place)
    assert [row.id for row in again.load().jobs] == [1]
    assert again.load().ranges == {1: [TaskRangeRow(1, 0, 1, TaskState.PENDING)]}
    again.close()


def test_ended_attempts_are_numbered_and_found_by_every_filter(leader: Leader) -> None:
    """1: alice's 1.0 on n1; 2: bob's 2.0, lost; 3: alice's gang 1.1 on n2 and n3, failed. Numbers, filters, gaps."""
    leader.commit(*submitted(job(1, tasks=3), job(2, user="bob")), now_ms=100)
    leader.commit(
        InsertAttempts([attempt(1), attempt(1, 1, nodes=("n2", "n3")), attempt(1, 2), attempt(2)]), now_ms=100
    )
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.SUCCEEDED, 200)]), now_ms=200)
    leader.commit(EndAttempts([AttemptEnd(2, 0, 1, AttemptState.LOST, 300)]), now_ms=300)
    gang = AttemptEnd(1, 1, 1, AttemptState.FAILED, 400, "exited", 3, usage={"cpu_ms": 5}, more_nodes=("n3",))
    assert leader.commit(EndAttempts([gang]), now_ms=400).last_end == 3

    def found(**wanted: Any) -> list[int]:
        return [row.sequence for row in leader.store.ended(0, EndFilter(**wanted), last=3).rows]

    assert found() == [1, 2, 3]
    assert (found(user="alice"), found(job=2), found(node="n3"), found(node="n1")) == ([1, 3], [2], [3], [1, 2])
    assert found(states=(AttemptState.FAILED,)) == [3]
    assert found(states=(AttemptState.FAILED, AttemptState.LOST)) == [2, 3]
    assert found(states=(AttemptState.FAILED, AttemptState.LOST), user="bob", node="n1") == [2]
    assert (found(since_ms=300), found(until_ms=300)) == ([2, 3], [1])
    newest = leader.store.ended(0, EndFilter(user="alice"), last=3, limit=1, newest=True)
    assert [bytes(row.usage) for row in newest.rows] == [b'{"cpu_ms":5}']


def test_readers_hold_what_they_have_not_read(leader: Leader) -> None:
    """One has read 2 of 5 events: with no retention at all the other three stay until it is removed."""
    for number in range(5):
        leader.commit(AppendEvents([event(EventKind.JOBS_HELD, [1], at_ms=number)]), now_ms=number)
    leader.commit(PutReaders((ReaderRow(name="a", user="root", created_ms=1, heard_ms=1, events=2),)), now_ms=9)
    leader.store.trim(10, Retention(events_count=0), epoch=leader.epoch)
    assert [one.sequence for one in leader.store.events()] == [3, 4, 5]
    leader.commit(PutReaders(forget=("a",)), now_ms=10)
    leader.store.trim(10, Retention(events_count=0), epoch=leader.epoch)
    assert (leader.store.events(), leader.store.readers()) == ([], [])
