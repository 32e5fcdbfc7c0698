"""What a request may be about: a user's own jobs, a token's accounts and queues; the rest is as if it were not there.

The user of a job never changes, so what is found here holds when the request is carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from hal.core.model import (
    DeniedError,
    Event,
    HALError,
    JobSpec,
    NotFoundError,
    SpecError,
    each_dependency,
    parse_tasks_ref,
)
from hal.core.model.errors import shown
from hal.core.model.step_token import read_attempt_token
from hal.daemons.controller.access.delegation import Delegations
from hal.daemons.controller.api.requests.parameters import job_id
from hal.daemons.controller.service.jobs.owners import PARENT_VARIABLE, Owned
from hal.daemons.controller.service.jobs.records import MAX_IDS, PART_COST
from hal.daemons.controller.service.jobs.refusals import no_job
from hal.daemons.controller.service.outcomes import Outcomes, OutcomeView, outcome_view
from hal.planes.tasks import CHEAP_A_SLICE, JobPatch, Pace
from hal.rest.enforcement import beyond_its_job
from hal.rest.identity import READING, Identity, Visit, check_scope
from hal.rest.parameters import AnyRequest
from hal.rest.rights import Role
from hal.runtime.interface import Runtime
from hal.runtime.step_users import HINT, ROOT, Serving, refusal
from hal.store import JobFilter

DEFAULT_QUEUE: Final = JobSpec().queue
MAX_DIGITS: Final = 18
"""Of a job id."""


class Owners(Protocol):
    """Knows whose jobs are."""

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        """Those that exist."""
        ...


class PathOwnership:
    """What a path names, before its handler runs: see `hal.rest.enforcement.CheckPath`."""

    def __init__(
        self, jobs: Owners, delegations: Delegations | None = None, operations: Container[str] = frozenset()
    ) -> None:
        """
        Args:
            delegations: who may see and control jobs of others; None: nobody knows here.
            operations: those that can be delegated, `METHOD /path/{template}`.
        """
        self._jobs = jobs
        self._delegations = delegations
        self._operations = operations

    async def check(self, visit: Visit, request: AnyRequest) -> None:
        """
        Raises:
            SpecError: that is no job's id.
            NotFoundError, DeniedError: as `check_job`.
        """
        job = request.path_params.get("job")
        if job is not None:
            delegations = self._delegations if visit.operation in self._operations else None
            changing = request.method not in READING
            await check_job(visit, self._jobs, job_id(job), changing=changing, delegations=delegations)


async def check_job(
    visit: Visit, jobs: Owners, job: int, *, changing: bool, delegations: Delegations | None = None
) -> None:
    """One job, named by the path.

    Args:
        delegations: who else may do this; None: nobody.
    Raises:
        NotFoundError: there is none, or it is not the caller's to know of.
        DeniedError: the token is not for its queue or account.
    """
    scoped = changing and _scoped(visit)
    if not visit.own_only and not scoped:
        return
    _refuse(visit, job, (await jobs.owners([job])).get(job), scoped=scoped, delegations=delegations)


def _scoped(visit: Visit) -> bool:
    return bool(visit.identity.scope.accounts or visit.identity.scope.queues)


def _is_own(visit: Visit, job: int, owned: Owned) -> bool:
    """Whether a job is the caller's; to a token of a step only its own job is, and what that has submitted."""
    identity = visit.identity
    if owned.user != identity.user:
        return False
    return not identity.only_job or job == identity.only_job or owned.parent == str(identity.only_job)


def _refuse(
    visit: Visit, job: int, owned: Owned | None, *, scoped: bool, delegations: Delegations | None = None
) -> None:
    if owned is not None and visit.own_only and not _is_own(visit, job, owned):
        if delegations is None or not delegations.cover(visit.identity, owned.account, owned.queue):
            visit.not_own = True
            raise no_job(job)
        visit.delegated = True
    if owned is None:
        raise no_job(job)
    if scoped:
        check_scope(visit.identity.scope, queue=owned.queue, account=owned.account, what=f"job {job}: ")


def only_about(event: Event, job: int) -> Event:
    """The event without what it says of other jobs, which may be other people's."""
    if event.jobs == (job,):
        return event
    payload = {
        name: [item for item in value if _job_of(item) == str(job)] if isinstance(value, list) else value
        for name, value in event.payload.items()
    }
    return replace(event, jobs=(job,), payload=payload)


def _job_of(item: Any) -> str:
    """The job that an entry of a payload's list is about."""
    first = item.get("id", "") if isinstance(item, dict) else item[0] if isinstance(item, list) and item else item
    return str(first).partition(".")[0]


# ── submitting ────────────────────────────────────────────────────────────────────────────────────────────────────


def check_specs(visit: Visit, specs: Sequence[JobSpec]) -> set[int]:
    """Jobs to be submitted; the jobs that they wait for whose owners are to be looked at (`check_owners`).

    Raises:
        DeniedError: another user's name, a raised priority, or what the token is not for.
    """
    if not visit.own_only and not _scoped(visit):
        return set()
    distinct = {id(spec): spec for spec in specs}.values()
    for spec in distinct:
        if visit.own_only:
            check_user(visit, spec.user, "user")
            _check_priority(spec.priority)
        check_scope(visit.identity.scope, queue=spec.queue, account=spec.account)
    if not visit.own_only:
        return set()
    names = {spec.name for spec in distinct if spec.name}
    return {
        int(one.job)
        for spec in distinct
        for one in each_dependency(spec.dependencies)
        if one.job not in names and one.job.isascii() and one.job.isdigit() and len(one.job) <= MAX_DIGITS
    }


def check_as_whom(identity: Identity, serving: Serving, owner: str, specs: Sequence[JobSpec]) -> None:
    """As whom the steps of these jobs would run: nobody runs a program as somebody else by naming them.

    Where each step runs as its user, root's jobs come from root itself: the kernel says so, or the token in HAL_HOME.
    An admin, who could create a token for any other user, may name them; an operator may not.

    Args:
        owner: who started this HAL.
    Raises:
        DeniedError: nothing is run for a job's user, or not for the caller.
    """
    if serving is Serving.ALL_AS_OWNER:
        return
    for user in {spec.user or identity.user for spec in specs}:
        if text := refusal(serving, owner, user):
            raise DeniedError(text, hint=HINT)
        if not _may_run_as(identity, owner, user):
            raise DeniedError(
                f"'{shown(user)}' runs no jobs for you: steps run as their users, and you are '{identity.user}'",
                hint="only root itself, on the controller's machine or with HAL_HOME/token, runs jobs as root"
                if user == owner
                else "leave the user out, or ask an admin",
            )


def check_entering(identity: Identity, serving: Serving, owner: str, user: str) -> None:
    """Whether the caller may enter steps of a user's, which is to act as that user: their own, and admins; operators
    may not. Where each step runs as its user, nobody runs a program as somebody else by entering their step.

    Args:
        owner: who started this HAL.
        user: of the job.
    Raises:
        DeniedError: they are not the caller's to enter.
    """
    if identity.user != user and identity.role is not Role.ADMIN:
        raise DeniedError(f"only '{shown(user)}' and admins enter the steps of this job", hint="ask its owner")
    if serving is Serving.ALL_AS_OWNER or _may_run_as(identity, owner, user):
        return
    raise DeniedError(
        f"the steps of '{shown(user)}' are not yours to enter: you are '{identity.user}'",
        hint="only root itself, on the controller's machine or with HAL_HOME/token, enters steps of root",
    )


def _may_run_as(identity: Identity, owner: str, user: str) -> bool:
    if identity.inside:
        return user != ROOT or identity.user == ROOT  # a controller of anybody else may have nodes of root
    if user == owner:  # a step of the owner's, whose process the kernel names
        return identity.user == owner and bool(identity.step) and not identity.only_job
    return user == identity.user or identity.role is Role.ADMIN


async def check_owners(visit: Visit, jobs: Owners, wanted: set[int]) -> None:
    """Jobs that others are to wait for.

    Raises:
        SpecError: one is not there, as far as the caller may know.
    """
    owners = await jobs.owners(wanted) if wanted else {}
    for job in sorted(wanted):
        owned = owners.get(job)
        visit.not_own = owned is not None and not _is_own(visit, job, owned)
        if owned is None or not _is_own(visit, job, owned):
            raise SpecError(f"dependencies: there is no job {job}", hint="`hal jobs --all` lists the jobs there are")


async def check_replaced(visit: Visit, jobs: Owners, specs: Sequence[JobSpec]) -> None:
    """Services whose place jobs are to take: who submits them may cancel these, too.

    Raises:
        NotFoundError: one is not there, as far as the caller may know.
        DeniedError: the token is not for its account or queue.
    """
    wanted = {one.service.replaces.job for one in specs if one.service is not None and one.service.replaces is not None}
    owners = await jobs.owners(wanted) if wanted else {}
    for job in sorted(wanted):
        owned = owners.get(job)
        visit.not_own = owned is not None and visit.own_only and not _is_own(visit, job, owned)
        if owned is None or visit.not_own:
            raise NotFoundError(f"service.replaces: there is no live job {job}", hint="hal jobs")
        check_scope(visit.identity.scope, queue=owned.queue, account=owned.account, what="service.replaces: ")


def in_its_queue(visit: Visit, specs: list[JobSpec]) -> list[JobSpec]:
    """What a step submits without naming queue and account belongs into those of its own job, which it names."""
    name = read_attempt_token(visit.identity.step)
    if name is None:
        return specs
    (queue,), (account,) = visit.identity.scope.queues, visit.identity.scope.accounts
    put = {
        id(spec): replace(
            spec,
            queue=queue if spec.queue == DEFAULT_QUEUE else spec.queue,
            account=spec.account or account,
            env={**spec.env, PARENT_VARIABLE: str(name.job)},
        )
        for spec in specs
    }
    return [put[id(spec)] for spec in specs]


def check_user(visit: Visit, user: str, field: str) -> None:
    """A user that somebody names who may only touch what is theirs.

    Raises:
        DeniedError: it is somebody else.
    """
    if user and user != visit.identity.user:
        raise DeniedError(
            f"{field}: '{shown(user)}' is somebody else; you are '{visit.identity.user}'",
            hint="leave it out, or ask an operator",
        )


def _check_priority(priority: int) -> None:
    if priority > 0:
        raise DeniedError(
            f"priority: {priority} is above 0, which only operators may set",
            hint="lower it to let your other jobs go first, or ask an operator",
        )


def check_patch(visit: Visit, patch: JobPatch) -> set[int]:
    """A change of one job (whose it is was looked at before); the jobs that it is to wait for whose owners are to be
    looked at (`check_owners`).

    Raises:
        DeniedError: as `check_specs`.
    """
    if visit.own_only and patch.priority is not UNSET:
        _check_priority(patch.priority)
    check_scope(
        visit.identity.scope,
        queue=None if patch.queue is UNSET else patch.queue,
        account=None if patch.account is UNSET else patch.account,
    )
    if not visit.own_only or patch.dependencies is UNSET:
        return set()
    named = {one.job for one in each_dependency(patch.dependencies)}
    return {int(job) for job in named if job.isascii() and job.isdigit() and len(job) <= MAX_DIGITS}


# ── several at once ───────────────────────────────────────────────────────────────────────────────────────────────


def narrowed(
    visit: Visit, wanted: JobFilter, *, changing: bool = False, delegations: Delegations | None = None
) -> JobFilter:
    """The filter, kept to what the caller may see, or change.

    Args:
        delegations: whose jobs of which accounts and queues are the caller's to see, or change, beside their own.
    Raises:
        DeniedError: it asks for another user's jobs, or for what the token is not for.
    """
    if wanted == JobFilter() and changing:
        return wanted  # no condition at all is refused as a mistake
    if visit.identity.only_job:
        raise beyond_its_job(visit.identity.only_job)
    delegated = delegations is not None and delegations.cover(visit.identity, wanted.account, wanted.queue)
    if visit.own_only and not delegated:
        check_user(visit, wanted.user, "user")
        wanted = replace(wanted, user=visit.identity.user)
    if changing:
        scope = visit.identity.scope
        queue = scope.queues[0] if len(scope.queues) == 1 and not wanted.queue else wanted.queue
        account = scope.accounts[0] if len(scope.accounts) == 1 and not wanted.account else wanted.account
        check_scope(scope, queue=queue, account=account, what="filter: ")
        wanted = replace(wanted, queue=queue, account=account)
    return wanted


async def control_some(
    visit: Visit,
    runtime: Runtime,
    jobs: Owners,
    ids: Sequence[str],
    carry_out: Callable[[Sequence[str]], Awaitable[Outcomes]],
    more: bool,
    delegations: Delegations | None = None,
) -> Outcomes:
    """Change the ids that the caller may change; the others get the outcome of jobs that are not there.

    Args:
        delegations: as for `narrowed`.
        runtime: what the loop runs on, which turns in between.
        carry_out: does it to these ids, and to what a filter names.
        more: there is a filter.
    """
    if (not visit.own_only and not _scoped(visit)) or not ids or len(ids) > MAX_IDS:
        return await carry_out(ids)
    refs, pace = [], Pace(CHEAP_A_SLICE)
    for text in ids:
        refs.append(ref := parse_tasks_ref(text))
        if pace.over(1 + PART_COST * len(ref.ranges)):
            await runtime.sleep(0)
    owners = await jobs.owners(ref.job for ref in refs)
    refused: dict[int, OutcomeView] = {}
    for place, ref in enumerate(refs):
        try:
            _refuse(visit, ref.job, owners.get(ref.job), scoped=_scoped(visit), delegations=delegations)
        except HALError as error:
            refused[place] = outcome_view(str(ref), error)
        if pace.over():
            await runtime.sleep(0)
    mine = [text for place, text in enumerate(ids) if place not in refused]
    done = iter((await carry_out(mine)).results if mine or more else ())
    ordered = [refused[place] if place in refused else next(done) for place in range(len(ids))]
    return Outcomes(results=[*ordered, *done])
