"""What a request may be about, rule by rule: users' own jobs, tokens' accounts and queues, steps' queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hal.core.model import DeniedError, JobSpec, SpecError, spec_from_plain
from hal.daemons.controller.api.requests.ownership import (
    check_owners,
    check_patch,
    check_specs,
    control_some,
    in_its_queue,
    narrowed,
)
from hal.daemons.controller.service.jobs.owners import Owned
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView
from hal.planes.tasks import JobPatch
from hal.rest.identity import Identity, Scope, Visit
from hal.rest.rights import Reach, Role
from hal.runtime.real_runtime import RealRuntime
from hal.store import JobFilter
from tests.runtime.real_runtime import run_real


class Jobs:
    """Job 1 is Ada's, job 2 is Bob's; there is no other."""

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        all_of_them = {1: Owned("ada", "physics", "short"), 2: Owned("bob", "physics", "short")}
        return {job: all_of_them[job] for job in jobs if job in all_of_them}


def visit(user: str = "ada", reach: Reach = Reach.OWN, step: str = "", **scope: Any) -> Visit:
    made = Visit(Identity(user=user, role=Role.USER, step=step, scope=Scope(**scope)), "")
    made.reach = reach
    return made


def waits_for(*jobs: str) -> JobSpec:
    return spec_from_plain({"command": ["x"], "dependencies": [f"afterok:{job}" for job in jobs]})


# ── submitting ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_submits_in_their_own_name_and_not_above_priority_0() -> None:
    """An operator does both."""
    check_specs(visit(), [JobSpec(user="ada", priority=0)])
    with pytest.raises(DeniedError, match="user: 'bob' is somebody else; you are 'ada'"):
        check_specs(visit(), [JobSpec(user="bob")])
    with pytest.raises(DeniedError, match="priority: 1 is above 0"):
        check_specs(visit(), [JobSpec(priority=1)])
    check_specs(visit(reach=Reach.ALL), [JobSpec(user="bob", priority=9)])


def test_a_token_for_a_queue_submits_there_only() -> None:
    """Also an operator's."""
    for reach in (Reach.OWN, Reach.ALL):
        check_specs(visit(reach=reach, queues=("short",)), [JobSpec(queue="short")])
        with pytest.raises(DeniedError, match="not for queue 'long'"):
            check_specs(visit(reach=reach, queues=("short",)), [JobSpec(queue="long")])


def test_jobs_that_others_wait_for_are_looked_at_but_not_names_of_the_same_submission() -> None:
    """7 is a job; `sweep` and `8` are names of jobs submitted here; nineteen digits are no job."""
    specs = [JobSpec(name="8"), JobSpec(name="sweep"), waits_for("7", "8", "sweep", "1" * 19)]
    assert check_specs(visit(), specs) == {7}
    assert check_specs(visit(reach=Reach.ALL), specs) == set()


@pytest.mark.parametrize(("job", "not_own"), [(2, True), (3, False)])
def test_safety_waiting_for_anothers_job_is_as_waiting_for_none(job: int, not_own: bool) -> None:
    """The caller sees the same; the audit log knows the difference."""
    asks = visit()
    with pytest.raises(SpecError, match=f"dependencies: there is no job {job}"):
        asyncio.run(check_owners(asks, Jobs(), {job}))
    assert asks.not_own is not_own
    asyncio.run(check_owners(visit(), Jobs(), {1}))


def test_what_a_step_submits_belongs_into_the_queue_and_account_of_its_job() -> None:
    """Where it names none; a queue that it names is left, and refused later."""
    asks = visit(step="0123-7.0.1-3.aa", queues=("short",), accounts=("physics",))
    put = in_its_queue(asks, [JobSpec(), JobSpec(queue="long", account="chemistry")])
    assert [(spec.queue, spec.account) for spec in put] == [("short", "physics"), ("long", "chemistry")]
    assert {spec.env["HAL_PARENT_JOB"] for spec in put} == {"7"}
    specs = [JobSpec()]
    assert in_its_queue(visit(), specs) is specs


# ── changing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_is_bound_as_a_submission_is() -> None:
    """Priority, queue, account; what is left out is not asked about."""
    check_patch(visit(queues=("short",)), JobPatch(name="x"))
    with pytest.raises(DeniedError, match="priority"):
        check_patch(visit(), JobPatch(priority=1))
    check_patch(visit(reach=Reach.ALL), JobPatch(priority=1))
    with pytest.raises(DeniedError, match="not for queue 'long'"):
        check_patch(visit(queues=("short",)), JobPatch(queue="long"))


def test_a_filter_is_kept_to_the_callers_jobs() -> None:
    """Naming oneself is allowed, naming another is refused; an operator's filter stays as it is."""
    assert narrowed(visit(), JobFilter(name="x")) == JobFilter(name="x", user="ada")
    assert narrowed(visit(), JobFilter(user="ada")).user == "ada"
    with pytest.raises(DeniedError, match="'bob' is somebody else"):
        narrowed(visit(), JobFilter(user="bob"))
    assert narrowed(visit(reach=Reach.ALL), JobFilter(name="x")) == JobFilter(name="x")


def test_a_filter_that_changes_is_kept_to_the_token() -> None:
    """Its only queue is filled in; of two, one must be named; listing is not narrowed by it."""
    operator = visit(reach=Reach.ALL, queues=("short",))
    assert narrowed(operator, JobFilter(name="x"), changing=True).queue == "short"
    assert narrowed(operator, JobFilter(name="x")).queue == ""
    with pytest.raises(DeniedError, match="needs the queue named"):
        narrowed(visit(reach=Reach.ALL, queues=("short", "long")), JobFilter(name="x"), changing=True)


def test_a_filter_without_any_condition_stays_one() -> None:
    """It is refused as a mistake later: narrowing must not make it mean all of one's jobs."""
    assert narrowed(visit(), JobFilter(), changing=True) == JobFilter()


def controlled(
    tmp_path: Path, asks: Visit, ids: Sequence[str], *, more: bool = False
) -> tuple[list[Sequence[str]], list[OutcomeView]]:
    """What was carried out, call by call, and all outcomes; a filter adds job 9."""
    carried: list[Sequence[str]] = []

    async def carry_out(mine: Sequence[str]) -> Outcomes:
        carried.append(list(mine))
        return Outcomes(results=[OutcomeView(id=one, ok=True) for one in [*mine, *(["9"] if more else [])]])

    async def main(runtime: RealRuntime) -> Outcomes:
        return await control_some(asks, runtime, Jobs(), ids, carry_out, more)

    return carried, run_real(tmp_path, main).results


def test_safety_of_several_ids_only_ones_own_are_carried_out(tmp_path: Path) -> None:
    """Outcomes in the order that was asked for; another's job looks like none; what a filter found comes after."""
    carried, results = controlled(tmp_path, visit(), ["2", "1.7", "3", "1"], more=True)
    assert carried == [["1.7", "1"]]
    assert [(one.id, one.ok) for one in results] == [
        ("2", False),
        ("1.7", True),
        ("3", False),
        ("1", True),
        ("9", True),
    ]
    assert results[0].detail.replace("2", "N") == results[2].detail.replace("3", "N")


def test_when_nothing_is_left_nothing_is_carried_out(tmp_path: Path) -> None:
    """An empty list of ids and no filter would be a mistake of the caller's, who made none."""
    carried, results = controlled(tmp_path, visit(), ["2"])
    assert carried == []
    assert [one.code for one in results] == ["not-found"]


def test_an_operators_ids_are_carried_out_as_they_are(tmp_path: Path) -> None:
    """Unless the token is for other accounts."""
    assert controlled(tmp_path, visit(reach=Reach.ALL), ["2", "3"])[0] == [["2", "3"]]
    carried, results = controlled(tmp_path, visit(reach=Reach.ALL, accounts=("chemistry",)), ["2"])
    assert carried == []
    assert results[0].code == "denied"
