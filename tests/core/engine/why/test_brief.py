"""A brief answer names the same reason as the whole one, and costs no forecast."""

from __future__ import annotations

import pytest

from hal.core.engine.state import State
from hal.core.engine.why.explain import explain
from hal.core.model.policy import Account, Limit, Policy, Queue
from hal.core.model.resources import Resources
from hal.core.model.units import Duration
from hal.core.model.verdict import Reason, short_reason
from tests.core.engine.rules.test_limits import HOUR_MS, cluster, job

CPU_HOURS = Limit(account="day", hours=Resources({"cpu": 1}), period=Duration(24 * HOUR_MS))


def waiting() -> State:
    """One node of eight cpus that job 1 holds, and a job for each thing to wait for."""
    policy = Policy(
        accounts={"ml": Account(name="ml"), "day": Account(name="day")},
        queues={
            "default": Queue(name="default"),
            "shut": Queue(name="shut", starts=False),
            "strict": Queue(name="strict", strict=True),
        },
        limits={
            "ml": Limit(account="ml", resources=Resources({"cpu": 4})),
            "one": Limit(user="*", running=1),
            "day": CPU_HOURS,
        },
    )
    state, _sink, scheduler = cluster(policy)
    scheduler.feed(job(1, 6, user="eve", walltime_ms=HOUR_MS))
    scheduler.run(0)
    scheduler.feed(job(2, 8, user="ada", walltime_ms=HOUR_MS))
    scheduler.feed(job(3, 1, user="ada", queue="shut"))
    scheduler.feed(job(4, 5, user="bob", account="ml"))
    scheduler.feed(job(5, 1, user="eve", walltime_ms=HOUR_MS))
    scheduler.feed(job(6, 1, user="fay", account="day", walltime_ms=3 * HOUR_MS))
    scheduler.feed(job(7, 8, user="guy", queue="strict", walltime_ms=HOUR_MS))
    scheduler.feed(job(8, 1, user="hal", queue="strict", walltime_ms=HOUR_MS))
    scheduler.feed(job(9, 1, user="ivy", nodes=2))
    scheduler.feed(job(10, 1, user="joe", eligible_ms=HOUR_MS))
    scheduler.feed(job(11, 1, user="kim", walltime_ms=9 * HOUR_MS))
    scheduler.run(0)
    return state


@pytest.mark.parametrize(
    ("number", "reason", "short"),
    [
        (2, Reason.RESOURCES, "resources"),
        (3, Reason.HOURS, "queue closed"),
        (4, Reason.LIMIT, "limit account cpu"),
        (5, Reason.LIMIT, "limit user tasks"),
        (6, Reason.LIMIT, "limit account cpu-hours"),
        (7, Reason.RESOURCES, "resources"),
        (8, Reason.STRICT, "strict order"),
        (9, Reason.IMPOSSIBLE, "impossible"),
        (10, Reason.BEGIN_AT, "begin"),
        (11, Reason.PRIORITY, "priority"),
    ],
)
def test_a_brief_answer_has_the_reason_of_the_whole_one(number: int, reason: Reason, short: str) -> None:
    """And the same few words; neither names a user or another job."""
    state = waiting()
    whole, brief = explain(state, number, 0), explain(state, number, 0, brief=True)
    assert (brief.reason, short_reason(brief)) == (reason, short)
    assert (whole.reason, short_reason(whole)) == (reason, short)
    assert (brief.position, brief.basis in ("", "begin-at", "hours of the queue")) == (None, True)
