"""The calls of REST /v1 about periodic jobs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hal.client.rest.calls import PAGE_ITEMS, Call, Page, fresh_key, page_reader, paged, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import JobSpec, to_json


class CronRunInfo(View, frozen=True, kw_only=True):
    """What became of a due time of a periodic job; instants are milliseconds since 1970."""

    number: int
    due_ms: int
    at_ms: int
    """When that was decided."""
    outcome: str
    """submitted, skipped (by the overlap policy), missed (HAL was down), refused."""
    manual: bool = False
    """A person asked for it."""
    job: str = ""
    """The job that was submitted; empty: none was."""
    state: str | None = None
    """Of that job now; None: it was removed, or none was submitted."""
    times: int = 1
    """Of due times that were missed together: how many; `due_ms` is the last."""
    reason: str = ""


class CronInfo(View, frozen=True, kw_only=True):
    """A periodic job; instants are milliseconds since 1970."""

    name: str
    user: str
    schedule: str
    zone: str = "UTC"
    overlap: str = "skip"
    catch_up: str = "none"
    keep: int = 0
    """Entries of its history that are kept."""
    queue: str = ""
    account: str = ""
    held_by: str = ""
    """Who holds it; empty: nobody."""
    next_ms: int | None = None
    """The next due time; None: it is held, or there is none."""
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0
    live: tuple[str, ...] = ()
    """Its jobs that have not ended."""
    last: CronRunInfo | None = None
    """The newest entry of its history."""
    job: dict[str, Any] | None = None
    """The job that it submits; None in listings."""


def cron_jobs(user: str = "", *, limit: int = PAGE_ITEMS, cursor: str = "") -> Call[Page[CronInfo]]:
    """GET /v1/cron"""
    return Call(paged("/v1/cron", _of(user), limit, cursor), page_reader("periodic", CronInfo))


def cron_job(name: str, user: str = "") -> Call[CronInfo]:
    """GET /v1/cron/{name}"""
    return Call(Request("GET", _path(name), query=_of(user)), reader(CronInfo))


def put_cron_job(
    name: str,
    schedule: str,
    job: JobSpec,
    *,
    zone: str = "UTC",
    overlap: str = "skip",
    catch_up: str = "none",
    keep: int | None = None,
    user: str = "",
    replace: bool = False,
    dry_run: bool = False,
) -> Call[CronInfo]:
    """PUT /v1/cron/{name}"""
    body: dict[str, Any] = {"schedule": schedule, "zone": zone, "overlap": overlap, "catch_up": catch_up, "job": job}
    if keep is not None:
        body["keep"] = keep
    query = _of(user) | {name: "1" for name, is_set in (("replace", replace), ("dry_run", dry_run)) if is_set}
    # Sent again after it was carried out, it finds one of its name, and that would look like a failure.
    repeatable = replace or dry_run
    return Call(Request("PUT", _path(name), query=query, body=to_json(body), repeatable=repeatable), reader(CronInfo))


def hold_cron_job(name: str, user: str = "") -> Call[CronInfo]:
    """POST /v1/cron/{name}/hold: twice is as once."""
    return Call(Request("POST", f"{_path(name)}/hold", query=_of(user)), reader(CronInfo))


def resume_cron_job(name: str, user: str = "") -> Call[CronInfo]:
    """POST /v1/cron/{name}/resume: twice is as once."""
    return Call(Request("POST", f"{_path(name)}/resume", query=_of(user)), reader(CronInfo))


def run_cron_job(name: str, user: str = "") -> Call[CronRunInfo]:
    """POST /v1/cron/{name}/run; with a key, so that sending it twice submits once."""
    headers = {"Idempotency-Key": fresh_key()}
    return Call(Request("POST", f"{_path(name)}/run", query=_of(user), headers=headers), reader(CronRunInfo))


def remove_cron_job(name: str, user: str = "") -> Call[CronInfo]:
    """DELETE /v1/cron/{name}"""
    return Call(Request("DELETE", _path(name), query=_of(user), repeatable=False), reader(CronInfo))


def cron_history(name: str, user: str = "", *, limit: int = PAGE_ITEMS, cursor: str = "") -> Call[Page[CronRunInfo]]:
    """GET /v1/cron/{name}/history, newest first."""
    return Call(paged(f"{_path(name)}/history", _of(user), limit, cursor), page_reader("runs", CronRunInfo))


def _path(name: str) -> str:
    return f"/v1/cron/{quote(name, safe='')}"


def _of(user: str) -> dict[str, str]:
    return {"user": user} if user else {}
