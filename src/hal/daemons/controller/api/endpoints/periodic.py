"""The endpoints about periodic jobs: make, list, show, hold, resume, run, remove, history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import DeniedError, spec_from_plain
from hal.core.model.periodic import PeriodicSpec
from hal.daemons.controller.api.endpoints.endpoint import CURSOR, FLAG, KEY, LIMIT, TEXT, Body, Endpoint, Param, ref
from hal.daemons.controller.api.requests.bodies import body_as
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_as_whom, check_specs, check_user
from hal.daemons.controller.api.requests.parameters import key_of
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.periodic.views import CronBody, CronHistory, CronList, CronRunView, CronView
from hal.rest.rights import OWNERS

Handler = Callable[[ControllerApi, Call], Awaitable[object]]

_NAME: Final = Param(name="name", where="path", text="its name", schema=TEXT, example="nightly")
_USER: Final = Param(name="user", text="whose it is; the caller's own when left out", schema=TEXT)


def _read(body: bytes) -> PeriodicSpec:
    asked = body_as(body, CronBody)
    return PeriodicSpec(
        schedule=asked.schedule,
        zone=asked.zone,
        overlap=asked.overlap,
        catch_up=asked.catch_up,
        keep=asked.keep,
        job=spec_from_plain(asked.job),
    )


# ── change ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def put_periodic(api: ControllerApi, call: Call) -> object:
    """Make a periodic job, or change one."""
    asked: PeriodicSpec = call.body
    user = _whose(call, changing=True)
    job = replace(asked.job, user=user)
    check_as_whom(call.visit.identity, *api.jobs.serving(), [job])
    check_specs(call.visit, [job])
    if job.secrets and user != call.visit.identity.user:
        raise DeniedError(
            f"secrets: only '{user}' makes periodic jobs that use secrets of '{user}'", hint="leave the secrets out"
        )
    params = call.params
    return await api.periodic.add(
        user,
        call.path("name"),
        replace(asked, job=job),
        call.submitter,
        replaces=params.flag("replace"),
        dry_run=params.flag("dry_run"),
    )


async def hold_periodic(api: ControllerApi, call: Call) -> object:
    """Hold one."""
    return await api.periodic.hold(_whose(call, changing=True), call.path("name"), call.submitter)


async def resume_periodic(api: ControllerApi, call: Call) -> object:
    """Resume one."""
    return await api.periodic.resume(_whose(call, changing=True), call.path("name"), call.submitter)


async def run_periodic(api: ControllerApi, call: Call) -> object:
    """Submit the job of one now."""
    key = key_of(call.request, call.raw, call.visit.identity)
    return await api.periodic.run_now(_whose(call, changing=True), call.path("name"), key)


async def remove_periodic(api: ControllerApi, call: Call) -> object:
    """Remove one."""
    return await api.periodic.remove(_whose(call, changing=True), call.path("name"))


def _whose(call: Call, *, changing: bool = False) -> str:
    """The user that the request names, or who asks.

    Raises:
        DeniedError: it is somebody else, or a step asks for a change.
    """
    visit, user = call.visit, call.params.text("user")
    if visit.own_only:
        check_user(visit, user, "user")
    if changing and visit.identity.step:
        raise DeniedError("a job may not change periodic jobs", hint="change them from outside of jobs")
    user = user or visit.identity.user
    if changing:
        visit.targets.append(f"cron={user}/{call.path('name')}")
    return user


# ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def list_periodic(api: ControllerApi, call: Call) -> object:
    """A page of those that the caller may see."""
    user = call.params.text("user")
    if call.visit.own_only:
        user = _whose(call)
    return await api.periodic.page(user, call.params.cursor(), call.params.limit())


async def get_periodic(api: ControllerApi, call: Call) -> object:
    """One."""
    return await api.periodic.get(_whose(call), call.path("name"))


async def list_runs(api: ControllerApi, call: Call) -> object:
    """A page of the history of one."""
    return await api.periodic.history(_whose(call), call.path("name"), call.params.cursor(), call.params.limit())


def _change(
    verb: str, summary: str, handler: Handler, result: type[Struct], problems: tuple[str, ...], *params: Param
) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"/v1/cron/{{name}}/{verb}",
        handler=handler,
        right=OWNERS,
        name=f"{verb}PeriodicJob",
        tag="jobs",
        summary=summary,
        params=(_NAME, _USER, *params),
        result=result,
        problems=problems,
    )


PERIODIC: Final = (
    Endpoint(
        method="GET",
        path="/v1/cron",
        handler=list_periodic,
        right=OWNERS,
        name="listPeriodicJobs",
        tag="jobs",
        summary="List periodic jobs, each with its next due time and what became of the last one",
        text="A user sees their own; an operator all, or those of one user.",
        params=(Param(name="user", text="those of this user", schema=TEXT), LIMIT, CURSOR),
        result=CronList,
        problems=("400",),
    ),
    Endpoint(
        method="PUT",
        path="/v1/cron/{name}",
        handler=put_periodic,
        right=OWNERS,
        name="putPeriodicJob",
        tag="jobs",
        summary="Make a periodic job, or change one",
        text="Its jobs are submitted in the name of its user and with a user's rights, which are looked at again at "
        "each due time. The job is checked as in a submission.",
        params=(
            _NAME,
            _USER,
            Param(name="replace", text="change the one of this name; without, it is refused", schema=FLAG),
            Param(name="dry_run", text="check only; store nothing", schema=FLAG),
        ),
        body=Body(
            schema=ref("CronBody"),
            examples={
                "at night": {
                    "schedule": "30 2 * * mon-fri",
                    "zone": "Europe/Berlin",
                    "job": {"command": ["./report.sh"], "walltime": "1h"},
                }
            },
            kind=CronBody,
            read=_read,
        ),
        result=CronView,
        problems=("400", "409", "413", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/cron/{name}",
        handler=get_periodic,
        right=OWNERS,
        name="getPeriodicJob",
        tag="jobs",
        summary="Show a periodic job, with the job that it submits",
        params=(_NAME, _USER),
        result=CronView,
        problems=("404",),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/cron/{name}",
        handler=remove_periodic,
        right=OWNERS,
        name="removePeriodicJob",
        tag="jobs",
        summary="Remove a periodic job with its history; jobs that it submitted go on",
        params=(_NAME, _USER),
        result=CronView,
        problems=("404", "503"),
    ),
    _change("hold", "Hold a periodic job: nothing of it is submitted", hold_periodic, CronView, ("404", "503")),
    _change(
        "resume", "Resume a periodic job, from its next due time on", resume_periodic, CronView, ("404", "409", "503")
    ),
    _change(
        "run",
        "Submit the job of a periodic job now, whatever schedule and overlap policy say",
        run_periodic,
        CronRunView,
        ("400", "404", "409", "503"),
        KEY,
    ),
    Endpoint(
        method="GET",
        path="/v1/cron/{name}/history",
        handler=list_runs,
        right=OWNERS,
        name="listPeriodicRuns",
        tag="jobs",
        summary="List what became of the due times of a periodic job, newest first",
        params=(_NAME, _USER, LIMIT, CURSOR),
        result=CronHistory,
        problems=("404",),
    ),
)
