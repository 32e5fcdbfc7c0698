"""What the policy admits, and what it refuses with the number and the nearest valid choice."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.model import ConflictError, HALError, JobSpec, spec_from_plain
from hal.core.model.codec import from_json
from hal.core.model.json_values import to_json
from hal.core.model.policy_text import policy_from_plain
from hal.planes.tasks import JobPatch, admitted
from hal.wire.frames.agent_keeper import Refusal, StepStarted
from tests.planes.tasks.small_plane import BY, SmallPlane

NOW_MS = 1_900_000_000_000
POLICY = policy_from_plain(
    {
        "accounts": {"org": {}, "ml": {"parent": "org"}, "bio": {"closed": True, "users": {"ann": 1}}},
        "users": ["ann", "bob"],
        "qos": {
            "low": {},
            "high": {"accounts": ["ml"], "max_walltime": "1h"},
            "own": {"users": ["ann"]},
        },
        "queues": {
            "night": {"accounts": ["org"], "qos": ["low", "high"], "default_qos": "low", "max_walltime": "8h"},
            "strict": {"qos": ["low"], "users": ["ann"]},
            "shut": {"open": False},
            "untrusted": {"sandbox": "read-only,writable=/scratch"},
        },
        "limits": {
            "gpus": {"account": "org", "max_job": {"gpu": 8}, "max_nodes": 4},
            "bob": {"user": "bob", "max_walltime": "30m"},
        },
        "licences": {"matlab": 10},
        "bookings": {
            "course": {"start_ms": NOW_MS, "duration": "2h", "count": 2, "users": ["bob"], "accounts": ["ml"]},
            "past": {"start_ms": 1, "duration": "1h", "count": 1, "users": ["ann"]},
            "upkeep": {"start_ms": NOW_MS, "duration": "1h", "nodes": ["n1"], "maintenance": True},
        },
    }
)


def spec(**fields: Any) -> Any:
    return spec_from_plain({"command": ["x"], **fields})


@pytest.mark.parametrize(
    ("fields", "user", "says"),
    [
        ({"queue": "nigth"}, "ann", "'nigth' is not a queue; did you mean 'night'? (valid queues: default, night"),
        ({"queue": "shut"}, "ann", "queue 'shut' is closed"),
        (
            {"queue": "untrusted", "sandbox": "read-only,writable=/home"},
            "ann",
            "sandbox: queue 'untrusted' does not let its jobs write to '/home' (it lets them write to /scratch)",
        ),
        ({"queue": "untrusted", "workdir": "/"}, "ann", "workdir: / would undo read-only of queue 'untrusted'"),
        ({"account": "mll"}, "ann", "account: 'mll' is not known to this HAL; did you mean 'ml'?"),
        ({"account": "bio"}, "bob", "account 'bio' is closed to user 'bob' (valid users: ann)"),
        ({"user": "eve"}, "ann", "user: 'eve' is not known to this HAL"),
        ({"queue": "night"}, "ann", "account: queue 'night' requires one (valid accounts: org)"),
        ({"queue": "night", "account": "bio"}, "ann", "account: 'bio' is not known to queue 'night'"),
        ({"queue": "strict"}, "ann", "qos: queue 'strict' requires one (valid QOS: low)"),
        ({"queue": "strict", "qos": "low"}, "bob", "user: 'bob' is not known to queue 'strict'"),
        ({"queue": "strict", "qos": "own"}, "ann", "qos: 'own' may not be used in queue 'strict'"),
        ({"qos": "hihg"}, "ann", "'hihg' is not a QOS; did you mean 'high'?"),
        ({"qos": "high"}, "ann", "account: qos 'high' requires one"),
        ({"qos": "own"}, "bob", "user: 'bob' is not known to qos 'own'"),
        ({"qos": "high", "account": "ml", "walltime": "2h"}, "ann", "2h is longer than qos 'high' allows (at most 1h)"),
        ({"queue": "night", "account": "ml", "walltime": "9h"}, "ann", "longer than queue 'night' allows (at most 8h)"),
        ({"walltime": "31m"}, "bob", "31m is longer than limit 'bob' allows (at most 30m)"),
        ({"account": "ml", "nodes": 5}, "ann", "limit 'gpus' (account org) allows 4"),
        (
            {"account": "ml", "nodes": 3, "request": {"cpu": 1, "gpu": 4}},
            "ann",
            "12 gpu on 3 nodes for one task; limit 'gpus' (account org) allows 8 (ask for at most 2.666 gpu per node)",
        ),
        ({"licences": {"matlap": 1}}, "ann", "did you mean 'matlab'"),
        ({"licences": {"matlab": 11}}, "ann", "11 matlab for one task; there are 10"),
        ({"booking": "corse"}, "ann", "did you mean 'course'"),
        ({"booking": "course"}, "ann", "account: booking 'course' requires one (valid accounts: ml)"),
        ({"booking": "course", "account": "org"}, "ann", "account: 'org' is not known to booking 'course'"),
        ({"booking": "course", "account": "ml", "walltime": "3h"}, "ann", "longer than booking 'course' allows"),
        ({"booking": "course", "account": "ml", "nodes": 3}, "ann", "booking 'course' holds 2"),
        ({"booking": "upkeep"}, "ann", "is maintenance"),
        ({"booking": "past"}, "ann", "is over"),
        ({"deadline_ms": NOW_MS}, "ann", "is before now"),
        ({"deadline_ms": NOW_MS + 5, "begin_at_ms": NOW_MS + 9}, "ann", "is before it begins"),
    ],
)
def test_a_refusal_names_what_is_allowed(fields: dict[str, Any], user: str, says: str) -> None:
    """One line: the thing, what was asked, what is valid."""
    with pytest.raises(HALError) as caught:
        admitted(spec(**fields), POLICY, user=user, now_ms=NOW_MS)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "user", "walltime", "qos"),
    [
        ({}, "ann", None, ""),
        ({}, "bob", "30m", ""),
        ({"queue": "night", "account": "ml"}, "ann", "8h", "low"),
        ({"queue": "night", "account": "ml", "qos": "high"}, "ann", "1h", "high"),
        ({"booking": "course"}, "bob", "30m", ""),
        ({"booking": "course", "account": "ml"}, "ann", "2h", ""),
        ({"account": "bio"}, "ann", None, ""),
    ],
)
def test_a_job_gets_the_defaults_of_its_place(fields: dict[str, Any], user: str, walltime: str, qos: str) -> None:
    """No walltime: the shortest of what queue, QOS, limits and booking allow; no QOS: the queue's."""
    got = admitted(spec(**fields), POLICY, user=user, now_ms=NOW_MS)
    assert (None if got.walltime is None else str(got.walltime), got.qos, got.user) == (walltime, qos, user)


# ── waiting tasks ─────────────────────────────────────────────────────────────────────────────────────────────────


def three_may_wait() -> SmallPlane:
    return SmallPlane(policy_from_plain({"limits": {"few": {"user": "*", "pending": 3}}}))


def refused(plane: SmallPlane, **job: Any) -> str:
    """Why it is refused as a conflict; nothing is staged."""
    with pytest.raises(ConflictError) as caught:
        plane.submit(job)
    assert plane.commit().empty
    return str(caught.value)


def test_a_submission_is_refused_whole_when_it_would_exceed_the_limit() -> None:
    """Two wait; two more at once are refused with how many may be added; another user has a ledger of his own."""
    plane = three_may_wait()
    plane.submit({"array": 2})
    assert "allows user alice 3 waiting tasks; 2 wait already, and this would add 2 (add at most 1 now" in refused(
        plane, array=2
    )
    plane.submit({"hold": True}, {"user": "bob", "array": 3})
    assert "wait until some have started" in refused(plane)


def test_a_place_is_free_when_the_start_is_confirmed_and_not_before() -> None:
    """Allocated on a node, it may be refused yet and would wait again."""
    plane = three_may_wait()
    (job,) = plane.submit({"array": 3})
    plane.start((job, 0), (job, 1))
    refused(plane)
    first, second = (plane.live(job).active[task].step(job, 0) for task in (0, 1))
    plane.plane.record_starts("n1", [StepStarted(first, 7, plane.now_ms)], plane.now_ms)
    plane.plane.record_refusals("n1", [Refusal(second, "overloaded", "no")], plane.now_ms)
    plane.commit()
    plane.submit({})
    refused(plane)


def test_a_job_may_not_be_moved_or_run_again_beyond_a_limit() -> None:
    """Into another queue's ledger, or from its end back to waiting; both are refused and change nothing."""
    plane = SmallPlane(
        policy_from_plain({"queues": {"short": {}}, "limits": {"few": {"queue": "short", "pending": 1}}})
    )
    (ended,) = plane.submit({"queue": "short"})
    plane.start((ended, 0))
    plane.end(ended, code=1)
    (waits,) = plane.submit({"queue": "short"})
    (other,) = plane.submit({})
    with pytest.raises(ConflictError, match="allows queue short 1 waiting tasks"):
        plane.plane.update(other, JobPatch(queue="short"), BY, plane.now_ms)
    assert plane.commit().empty
    plane.plane.cancel(waits, None, BY, plane.now_ms)
    plane.commit()
    plane.plane.update(other, JobPatch(queue="short"), BY, plane.now_ms)
    plane.commit()
    refused(plane, queue="short")


def test_a_limit_that_comes_later_counts_what_waits_already() -> None:
    """Five wait when a limit of three comes: they stay, and one more is refused until they are fewer."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 5})
    limit = policy_from_plain({"limits": {"few": {"pending": 3}}})
    assert plane.plane.change_policy(limit, BY, plane.now_ms)
    plane.commit()
    assert "5 wait already" in refused(plane)
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    plane.submit({"array": 3})


def test_a_changed_pool_of_a_queue_concerns_what_waits() -> None:
    """Its waiting tasks leave the engine and come back with the other constraints."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 2})
    assert plane.live(job).request.constraints == ()
    pool = policy_from_plain({"queues": {"default": {"nodes": ["gpu=a100"]}}})
    plane.plane.change_policy(pool, BY, plane.now_ms)
    plane.commit()
    (rule,) = plane.live(job).request.constraints
    assert (rule.key, rule.values) == ("gpu", ("a100",))
    assert (job, 1) in plane.engine.pending


def test_a_job_in_a_queue_has_its_queues_sandbox_and_its_own() -> None:
    """Whichever asks for more; also where it may write."""
    job = spec(queue="untrusted", sandbox="read-only,private-tmp,writable=/scratch/ann")
    words = ("private-tmp", "read-only", "writable=/scratch", "writable=/scratch/ann")
    assert admitted(job, POLICY, user="ann", now_ms=NOW_MS).sandbox == words


def test_a_job_gets_of_its_queue_what_it_does_not_name() -> None:
    """Memory, where it asks for none; what it names itself stays."""
    policy = policy_from_plain({"queues": {"default": {"default_request": {"memory": "2GiB", "disk": "1GiB"}}}})
    asked = [spec(), spec(request={"cpu": 2, "memory": "1GiB"})]
    found = [admitted(one, policy, user="ann", now_ms=NOW_MS).request for one in asked]
    assert [one.plain() for one in found] == [
        {"cpu": "1", "disk": "1GiB", "memory": "2GiB"},
        {"cpu": "2", "disk": "1GiB", "memory": "1GiB"},
    ]


@pytest.mark.parametrize(
    ("request_", "cpu"),
    [(None, 4000), ({"memory": "1GiB"}, 4000), ({"cpu": 1}, 1000), ({"cpu": "500m"}, 500), ({"cpu": 0, "gpu": 1}, 0)],
)
def test_a_job_that_says_nothing_of_cpus_gets_those_of_its_queue(request_: dict[str, Any] | None, cpu: int) -> None:
    """One core that it asks for is one core, and none is none: a default is told from a wish, also in JSON."""
    policy = policy_from_plain({"queues": {"default": {"default_request": {"cpu": 4}}}})
    asked = from_json(to_json(spec(**({} if request_ is None else {"request": request_}))), JobSpec)
    assert admitted(asked, policy, user="ann", now_ms=NOW_MS).request.get("cpu", 0) == cpu


def test_without_a_queues_default_a_job_gets_one_core() -> None:
    """Also one that asks for memory only, in JSON."""
    asked = from_json(b'{"command": ["x"], "request": {"memory": "1GiB"}}', JobSpec)
    found = admitted(asked, policy_from_plain({"queues": {"default": {}}}), user="ann", now_ms=NOW_MS)
    assert found.request.plain() == {"cpu": "1", "memory": "1GiB"}
