"""The endpoints about jobs: submit, list, change, control, wait, and why one waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from hal.core.model import DeniedError, JobSpec, SpecError, parse_duration
from hal.core.model.eviction import DEFAULT_GRACE_MS, Evict, EvictMode, check_evict
from hal.daemons.controller.api.endpoints.endpoint import (
    CURSOR,
    DEFAULT_WAIT_S,
    FLAG,
    INT,
    JOB,
    KEY,
    LIMIT,
    STATE,
    TASKS,
    TEXT,
    TIMEOUT,
    Body,
    Endpoint,
    Param,
    body_of,
    ref,
)
from hal.daemons.controller.api.requests.bodies import beside, specs_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import (
    check_as_whom,
    check_owners,
    check_patch,
    check_replaced,
    check_specs,
    control_some,
    in_its_queue,
    narrowed,
)
from hal.daemons.controller.api.requests.parameters import JOB_FILTERS, job_filter, key_of, states_of, tasks_named
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.idempotency import Key
from hal.daemons.controller.service.jobs.control import Action
from hal.daemons.controller.service.jobs.jobs import Submitted
from hal.daemons.controller.service.jobs.views import (
    JobView,
    ScoresView,
    TaskStatesView,
    TaskView,
    UpdatedView,
    WhyView,
)
from hal.daemons.controller.service.outcomes import Outcomes, refusals_of
from hal.planes.tasks import JobGraph, JobPatch, patch_of
from hal.rest.answers import VIEWS_A_SLICE, answer_in_parts, free, json_answer, page_cursor, sliced_answer
from hal.rest.bodies import plain_json
from hal.rest.identity import Visit
from hal.rest.rights import OPERATORS, OWNERS
from hal.runtime.step_users import Serving
from hal.store import JobFilter


class JobsPage(Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first; pass `cursor` for the next page, null at the end."""

    jobs: list[JobView]
    cursor: str | None


class TasksPage(Struct, frozen=True, kw_only=True):
    """A page of tasks in ascending order."""

    tasks: list[TaskView]
    cursor: str | None


class ControlBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The jobs and tasks that a request changes."""

    ids: list[str] = []
    """`42` for a job; `42.7`, `42.7-9`, `42.1,3,5-9:2` for its tasks by number, `42[1,3-5]` by HAL_ARRAY_INDEX."""
    states: str = ""
    """Of what `ids` name, only tasks in these states: a comma list."""
    filter: dict[str, str] | None = None
    """Live jobs that match all of state, user, queue, name, account, label; requeue: ended ones too if asked. The
    state is that of tasks: of an array, cancel, requeue and evict take those tasks alone."""


class RemoveBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The ended jobs that a request removes."""

    ids: list[str] = []
    """`42` for a job with all of its tasks; `42.7`, `42.7-9`, `42[1,3-5]` for some of them, as in `ControlBody`."""
    states: str = ""
    """Of what `ids` name, only tasks that ended in these states: a comma list."""
    filter: dict[str, str] | None = None
    """The oldest 10,000 ended jobs that match all of state, user, queue, name, account, label."""
    ended_before_ms: int | None = None
    """Of those that the filter names (or, without one, of all): only jobs that ended before this instant."""


class EvictBody(ControlBody, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The jobs and tasks that are evicted, how and why."""

    nodes: list[str] = []
    """All that runs on these, beside what is named."""
    mode: EvictMode = EvictMode.REQUEUE
    """requeue, checkpoint: their tasks wait again, no retry is counted; cancel: they are cancelled."""
    reason: str = ""
    """One line for the owners of the jobs."""
    within: Any = None
    """How long the work has to save itself and end before it is killed, as a duration; 30s by default."""

    @property
    def eviction(self) -> Evict:
        """What it says of evicting.

        Raises:
            SpecError: its time or its reason is none.
        """
        grace_ms = DEFAULT_GRACE_MS if self.within is None else int(parse_duration(self.within, field="within"))
        return check_evict(Evict(mode=self.mode, reason=self.reason, grace_ms=grace_ms), field="within")


# ── submit ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def submit(api: ControllerApi, call: Call) -> object:
    """All jobs of the body, or none."""
    dry_run = call.params.flag("dry_run")
    specs, wanted, key = await beside(api.runtime, call.raw, partial(_submission, call, *api.jobs.serving()))
    await check_owners(call.visit, api.jobs, wanted)
    await check_replaced(call.visit, api.jobs, specs)
    try:
        done = await api.jobs.submit(specs, call.submitter, dry_run=dry_run, key=key)
        call.visit.targets.append(_range_of(done.ids))
        status = 200 if dry_run else 201
        if len(done.jobs) <= VIEWS_A_SLICE:
            return json_answer(done, status)
        return await sliced_answer(call, api.runtime, replace(done, jobs=[]), "jobs", done.jobs, status)
    finally:
        await free(api.runtime, specs)


def _submission(call: Call, serving: Serving, owner: str) -> tuple[list[JobSpec], set[int], Key | None]:
    """What a submission says: its jobs, those of others that they wait for, its key."""
    specs = in_its_queue(call.visit, specs_of(call.raw))
    check_as_whom(call.visit.identity, serving, owner, specs)
    return specs, check_specs(call.visit, specs), key_of(call.request, call.raw, call.visit.identity)


def _range_of(ids: Sequence[str]) -> str:
    """The jobs of a submission, whose ids ascend without a gap."""
    return ids[0] if len(ids) == 1 else f"{ids[0]}-{ids[-1]}" if ids else ""


# ── read and change ───────────────────────────────────────────────────────────────────────────────────────────────


async def list_jobs(api: ControllerApi, call: Call) -> object:
    """A page of those that the caller may see."""
    limit = call.params.limit()
    wanted = narrowed(call.visit, call.params.job_filter(), delegations=api.delegations)
    found = await api.jobs.page(
        wanted, call.params.cursor(), limit, reasons=call.params.flag("reasons"), placed=call.params.flag("placed")
    )
    return JobsPage(jobs=found, cursor=page_cursor([job.id for job in found], limit))


async def get_job(api: ControllerApi, call: Call) -> object:
    """Return a job."""
    params = call.params
    found = await api.jobs.get(
        call.job,
        reasons=params.flag("reasons"),
        placed=params.flag("placed"),
        all_dependants=params.flag("all_dependants"),
    )
    return _shown(call, found)


def _shown(call: Call, job: JobView) -> JobView:
    """To whom only some rights were delegated, not what its user wrote into it: commands, variables, other jobs."""
    return replace(job, spec=UNSET, dependants=UNSET) if call.visit.delegated else job


async def get_graph(api: ControllerApi, call: Call) -> object:
    """The jobs before and after it."""
    if call.visit.delegated:
        raise DeniedError(f"job {call.job} is of another user: only they see what depends on it")
    body = await api.jobs.graph(call.job)
    parts = [body[at : at + GRAPH_PART] for at in range(0, len(body), GRAPH_PART)]
    return answer_in_parts(call, api.runtime, parts)


async def update_job(api: ControllerApi, call: Call) -> object:
    """Change a job, or check a change."""
    change: JobPatch = call.body
    await check_owners(call.visit, api.jobs, check_patch(call.visit, change))
    return await api.jobs.update(call.job, change, call.submitter, dry_run=call.params.flag("dry_run"))


def _patch(body: bytes) -> JobPatch:
    return patch_of(plain_json(body))


async def wait_for_job(api: ControllerApi, call: Call) -> object:
    """Wait for the end of a job; returns its state after at most the given time."""
    timeout_s = call.params.seconds("timeout_s", DEFAULT_WAIT_S)
    return _shown(call, await api.jobs.wait(call.job, timeout_s))


async def explain_job(api: ControllerApi, call: Call) -> object:
    """Explain why a job waits."""
    return await api.jobs.why(call.job)


async def score_nodes(api: ControllerApi, call: Call) -> object:
    """The best nodes for a job that waits."""
    return await api.jobs.scores(call.job, call.params.integer("limit", DEFAULT_SCORED, low=1, high=MAX_SCORED))


async def list_tasks(api: ControllerApi, call: Call) -> object:
    """Return a page of the tasks of a job."""
    limit = call.params.limit()
    named = tasks_named(call.params.text("tasks"), call.job, call.params.states())
    found = await api.jobs.tasks(call.job, named, call.params.cursor(), limit)
    return TasksPage(tasks=found, cursor=page_cursor([task.task for task in found], limit))


async def get_task_states(api: ControllerApi, call: Call) -> object:
    """Return the states of all tasks of a job."""
    return await api.jobs.task_states(call.job)


async def get_task(api: ControllerApi, call: Call) -> object:
    """Return one task of a job."""
    return await api.jobs.task(call.job, call.task)


# ── control ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _filter_of(asked: ControlBody | RemoveBody, visit: Visit) -> JobFilter | None:
    """The filter of a request that changes jobs; what it names is noted for the audit log.

    Raises:
        SpecError: no such filter.
    """
    unknown = sorted(set(asked.filter or {}) - set(JOB_FILTERS))
    if unknown:
        raise SpecError(f"filter: '{unknown[0]}' is not a filter", hint=f"they are {', '.join(JOB_FILTERS)}")
    visit.targets.extend(asked.ids)
    if asked.states:
        if not asked.ids:
            raise SpecError("states: goes with ids", hint='a filter names them as {"state": "pending"}')
        visit.targets.append(f"states={asked.states}")
    visit.targets.extend(f"{name}={value}" for name, value in (asked.filter or {}).items())
    return None if asked.filter is None else job_filter(asked.filter)


def _noted(visit: Visit, done: Outcomes) -> Outcomes:
    """The outcomes; what was refused is noted for the audit log."""
    visit.targets[:0] = refusals_of(done.results)
    return done


async def control_jobs(action: Action, api: ControllerApi, call: Call) -> object:
    """Change the jobs that are named or match, if the caller may."""
    asked: ControlBody = call.body
    visit, dry_run = call.visit, call.params.flag("dry_run")
    wanted = _filter_of(asked, visit)
    states = states_of(asked.states)
    delegations = api.delegations if action in DELEGATED_ACTIONS else None
    wanted = None if wanted is None else narrowed(visit, wanted, changing=True, delegations=delegations)
    key = key_of(call.request, call.raw, visit.identity)

    async def carry_out(ids: Sequence[str]) -> Outcomes:
        return await api.jobs.control(action, ids, wanted, call.submitter, key=key, states=states, dry_run=dry_run)

    more = wanted is not None
    done = await control_some(visit, api.runtime, api.jobs, asked.ids, carry_out, more, delegations)
    return _noted(visit, done)


async def remove_jobs(api: ControllerApi, call: Call) -> object:
    """Remove the ended jobs that are named or match, if the caller may."""
    asked: RemoveBody = call.body
    visit, states = call.visit, states_of(asked.states)
    wanted = _filter_of(asked, visit)
    if asked.ended_before_ms is not None:
        if asked.ids:
            raise SpecError("ended_before_ms: goes with a filter, not with ids")
        visit.targets.append(f"ended_before_ms={asked.ended_before_ms}")
        wanted = replace(wanted or JobFilter(), ended_before_ms=asked.ended_before_ms)
    wanted = None if wanted is None else narrowed(visit, wanted, changing=True)

    async def carry_out(ids: Sequence[str]) -> Outcomes:
        return await api.jobs.removal.remove(ids, wanted, call.submitter, states)

    return _noted(visit, await control_some(visit, api.runtime, api.jobs, asked.ids, carry_out, wanted is not None))


async def evict_jobs(api: ControllerApi, call: Call) -> object:
    """Evict the jobs that are named or match, and all that runs on the nodes that are named."""
    asked: EvictBody = call.body
    visit, dry_run = call.visit, call.params.flag("dry_run")
    wanted, eviction = _filter_of(asked, visit), asked.eviction
    wanted = None if wanted is None else narrowed(visit, wanted, changing=True)
    visit.targets.extend(f"node={name}" for name in asked.nodes)
    if asked.nodes and visit.identity.narrowed:
        raise DeniedError(
            f"nodes: token {visit.identity.token} is narrowed to accounts or queues, and nodes run everybody's work",
            hint="name jobs, or use a token that was made without --account and --queue",
        )
    key = key_of(call.request, call.raw, visit.identity)

    async def carry_out(ids: Sequence[str]) -> Outcomes:
        return await api.jobs.control(
            Action.EVICT,
            ids,
            wanted,
            call.submitter,
            key=key,
            eviction=eviction,
            nodes=asked.nodes,
            states=states_of(asked.states),
            dry_run=dry_run,
        )

    more = wanted is not None or bool(asked.nodes)
    return _noted(visit, await control_some(visit, api.runtime, api.jobs, asked.ids, carry_out, more))


# ── the rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

DELEGATED_ACTIONS: Final = (Action.CANCEL, Action.HOLD, Action.RELEASE)
"""What coordinators of a job's account and operators of its queue may do, too."""
_CONTROL_TEXT: Final = {
    Action.CANCEL: "Waiting tasks are cancelled at once; running ones get SIGTERM, then SIGKILL, then are cancelled.",
    Action.HOLD: "Waiting tasks do not start until they are released; running ones continue.",
    Action.RELEASE: "Held tasks wait for resources again, at their old rank.",
    Action.REQUEUE: (
        "Run tasks again: running ones are stopped and wait again, ended ones wait again, a back-off ends. "
        "For a whole job: the tasks that did not succeed, or all if every task succeeded."
    ),
}
DRY_RUN: Final = Param(name="dry_run", text="change nothing; say of how many tasks each is", schema=FLAG)
_ONE: Final = {"command": ["python3", "train.py"], "request": {"cpu": 4, "memory": "8GiB"}, "walltime": "2h"}
_ARRAY: Final = {"name": "sweep", "array": "0-999", "script": "#!/bin/sh\nrun --case $HAL_ARRAY_INDEX\n"}
_FAN_IN: Final = {"name": "report", "command": ["report"], "dependencies": ["afterok:sweep"]}

DEFAULT_SCORED: Final = 10
GRAPH_PART: Final = 256 << 10
"""Bytes of a graph that are sent in one turn of the loop."""
MAX_SCORED: Final = 1_000
SCORED: Final = Param(
    name="limit",
    text="maximum number of nodes",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_SCORED, "default": DEFAULT_SCORED},
)
REASONS: Final = Param(name="reasons", text="show in a few words why a job that waits does: `waiting`", schema=FLAG)
PLACED: Final = Param(name="placed", text="show where a job runs now: `placement`", schema=FLAG)

JOBS: Final = (
    Endpoint(
        method="POST",
        path="/v1/jobs",
        handler=submit,
        right=OWNERS,
        name="submit",
        tag="jobs",
        summary="Submit one job or many; all are accepted, or none",
        text="Responds when the jobs are durable. Jobs of one submission may name each other as dependencies.",
        params=(Param(name="dry_run", text="check only; store nothing", schema=FLAG), KEY),
        body=Body(
            schema={"anyOf": [ref("JobSpec"), ref("JobSpecs")]},
            examples={"one job": _ONE, "an array and what follows it": {"jobs": [_ARRAY, _FAN_IN]}},
        ),
        result=Submitted,
        status=201,
        or_status={200: "A dry run: the submission would be accepted"},
        problems=("400", "409", "413", "503"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs",
        handler=list_jobs,
        right=OWNERS,
        name="listJobs",
        tag="jobs",
        summary="List jobs, newest first",
        params=(
            STATE,
            Param(name="user", text="jobs of this user", schema=TEXT),
            Param(name="queue", text="jobs in this queue", schema=TEXT),
            Param(
                name="name",
                text="jobs of this name, or of this program if they have none; `*` and `?` stand for anything",
                schema=TEXT,
            ),
            Param(name="account", text="jobs of this account", schema=TEXT),
            Param(
                name="label",
                text="comma list of `key` and `key=value`; all must match",
                schema=TEXT,
                example="team=blue",
            ),
            Param(name="node", text="jobs that hold a part of this node now", schema=TEXT),
            Param(name="submitted_from_ms", text="jobs that were submitted at that time or later", schema=INT),
            Param(name="submitted_before_ms", text="jobs that were submitted before that time", schema=INT),
            REASONS,
            PLACED,
            LIMIT,
            CURSOR,
        ),
        result=JobsPage,
        problems=("400",),
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}",
        handler=get_job,
        right=OWNERS,
        name="getJob",
        tag="jobs",
        summary="Show one job, with its spec",
        params=(
            JOB,
            REASONS,
            PLACED,
            Param(
                name="all_dependants",
                text="name in `dependants` also jobs of the same user that no longer wait, among the next 20,000 jobs",
                schema=FLAG,
            ),
        ),
        result=JobView,
        problems=("400", "404"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="PATCH",
        path="/v1/jobs/{job}",
        handler=update_job,
        right=OWNERS,
        name="updateJob",
        tag="jobs",
        summary="Change a job that has not ended",
        text="What waits takes the change; what runs keeps what it was started with, but for `walltime` (counted from "
        "its start), `priority` and `max_running`. Fields are written as in a submission; lists and tables replace "
        "those there are, but of `request` only the resources that are named. All fields change, or none.",
        params=(JOB, Param(name="dry_run", text="check only; return what would change", schema=FLAG)),
        body=Body(
            schema=ref("JobPatch"),
            examples={
                "more time": {"walltime": "4h"},
                "hold": {"hold": True},
                "larger, later": {"request": {"cpu": 4, "memory": "8GiB"}, "dependencies": ["afterok:41"]},
            },
            kind=JobPatch,
            read=_patch,
        ),
        result=UpdatedView,
        problems=("400", "404", "409", "413", "503"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/wait",
        handler=wait_for_job,
        right=OWNERS,
        name="waitForJob",
        tag="jobs",
        summary="Wait for the job's end",
        text="Responds as soon as the job has ended, or after `timeout_s` with its current state: check `state`.",
        params=(JOB, TIMEOUT),
        result=JobView,
        problems=("400", "404", "503"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/why",
        handler=explain_job,
        right=OWNERS,
        name="whyJob",
        tag="jobs",
        summary="Show why a job does not start, when it is forecast to start, and what would help",
        params=(JOB,),
        result=WhyView,
        problems=("400", "404"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/graph",
        handler=get_graph,
        right=OWNERS,
        name="jobGraph",
        tag="jobs",
        summary="Show the jobs before and after a job, and theirs",
        text="In columns, for pictures of large graphs: jobs of the same user, among the 100,000 that were submitted "
        "before it and the 100,000 behind it; the nearest 100,000 of them.",
        params=(JOB,),
        result=JobGraph,
        problems=("400", "404"),
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/scores",
        handler=score_nodes,
        right=OWNERS,
        name="scoreNodes",
        tag="jobs",
        summary="Show the best nodes for a job that waits, with their scores",
        params=(JOB, SCORED),
        result=ScoresView,
        problems=("400", "404", "409"),
        for_job_tokens=True,
    ),
    *(
        Endpoint(
            method="POST",
            path=f"/v1/jobs/{action}",
            handler=partial(control_jobs, action),
            right=OWNERS,
            name=f"{action}Jobs",
            tag="jobs",
            summary=f"{action.capitalize()} jobs and tasks, by id or filter",
            text=f"{text} One outcome for each; a refused one does not affect the others.",
            params=(KEY, DRY_RUN),
            body=body_of(
                ControlBody,
                {
                    "by id": {"ids": ["42", "43.7"]},
                    "tasks": {"ids": ["42.0-9", "43[1,3-5]"], "states": "pending"},
                    "by filter": {"filter": {"user": "alice", "state": "pending"}},
                },
            ),
            result=Outcomes,
            problems=("400", "409", "413", "503"),
            for_job_tokens=True,
        )
        for action, text in _CONTROL_TEXT.items()
    ),
    Endpoint(
        method="POST",
        path="/v1/jobs/remove",
        handler=remove_jobs,
        right=OWNERS,
        name="removeJobs",
        tag="jobs",
        summary="Remove ended jobs, or tasks of them, with their attempts and outputs, by id or filter",
        text=(
            "Responds when they are gone for every reader; nodes delete the outputs afterwards, those that are away "
            "when they are back. Live jobs, and jobs that others wait for, are refused. A job of which tasks were "
            "removed keeps its other tasks and its end, and cannot run again. One outcome for each; a "
            "refused one does not affect the others. If 10,000 match, there may be more: repeat the request."
        ),
        body=body_of(
            RemoveBody,
            {
                "by id": {"ids": ["42", "43"]},
                "tasks": {"ids": ["42"], "states": "failed,timed-out"},
                "by filter": {"filter": {"queue": "short", "state": "ended"}, "ended_before_ms": 1767225600000},
            },
        ),
        result=Outcomes,
        problems=("400", "409", "413", "503"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="POST",
        path="/v1/jobs/evict",
        handler=evict_jobs,
        right=OPERATORS,
        name="evictJobs",
        tag="jobs",
        summary="Make running jobs and tasks leave, by id, filter or node",
        text="No retry is counted. One outcome for each; a refused one does not affect the others.",
        params=(KEY, DRY_RUN),
        body=body_of(
            EvictBody,
            {
                "by id": {"ids": ["42", "43.7"], "reason": "its node overheats"},
                "a node": {"nodes": ["n1"], "mode": "checkpoint", "within": "2m", "reason": "spot notice"},
            },
        ),
        result=Outcomes,
        problems=("400", "409", "413", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/tasks",
        handler=list_tasks,
        right=OWNERS,
        name="listTasks",
        tag="tasks",
        summary="List the job's tasks, each with its latest attempt",
        params=(JOB, TASKS, STATE, LIMIT, CURSOR),
        result=TasksPage,
        problems=("400", "404"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/task-states",
        handler=get_task_states,
        right=OWNERS,
        name="getTaskStates",
        tag="tasks",
        summary="Show in which state all tasks of a job are",
        text="As runs of equal states, from the first task to the last: for pictures of large arrays.",
        params=(JOB,),
        result=TaskStatesView,
        problems=("400", "404"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/tasks/{task}",
        handler=get_task,
        right=OWNERS,
        name="getTask",
        tag="tasks",
        summary="Show one task with all its attempts",
        params=(JOB, Param(name="task", where="path", text="task number, from 0", schema=INT, example=0)),
        result=TaskView,
        problems=("400", "404"),
        for_job_tokens=True,
    ),
)
