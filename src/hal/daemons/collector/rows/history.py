"""Rows of the history: usage summed by account, user, queue, node or job name, and ended attempts one by one."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import DeniedError, SpecError
from hal.core.model.errors import shown
from hal.daemons.collector.collector import Collector
from hal.daemons.collector.usage_views import LostView, UsageView, usage_rows
from hal.planes.observability.history.part import History
from hal.planes.observability.history.periods import Period, edges_of
from hal.planes.observability.history.reading import MAX_ROWS, KeptAttempt
from hal.planes.observability.history.usage import By, Wanted
from hal.rest.call import Call
from hal.rest.endpoint import FLAG, INT, TEXT, Endpoint, Param
from hal.rest.parameters import MAX_SEQUENCE
from hal.rest.rights import OWNERS
from hal.runtime.time_zones import zone_named

MAX_MS: Final = 250_000_000_000_000
"""In the year 9892: calendars end in 9999."""
VIEWS: Final = "usage-views"
"""Thread on which rows are made: of 100,000 of them that takes seconds."""
DEFAULT_ROWS: Final = 1_000
DEFAULT_RANGE_MS: Final = 7 * 86_400_000
E = TypeVar("E", By, Period)


class HistoryPage(Struct, frozen=True, kw_only=True):
    """Ended attempts, in the order in which the history got them."""

    attempts: list[KeptAttempt]
    cursor: str
    """`after` of the next page; empty: this was the last."""


async def get_usage(collector: Collector, call: Call) -> UsageView:
    """Sums of a range of time."""
    params, history = call.params, _history(collector)
    by = _one_of(By, params.text("by", By.ACCOUNT), "by")
    period = _one_of(Period, params.text("period"), "period") if params.text("period") else None
    since_ms, until_ms = _range(collector, call)
    edges = edges_of(since_ms, until_ms, period, zone_named(params.text("zone", "UTC")))
    wanted = await _wanted(collector, call, delegated=True)
    found = await history.usage(wanted, by, edges)
    lost = await history.lost()
    return UsageView(
        by=by,
        period=period,
        since_ms=since_ms,
        until_ms=until_ms,
        rows=await collector.runtime.run_blocking(partial(usage_rows, found.sums, list(pairwise(edges))), VIEWS),
        currency=history.currency,
        rounded=found.rounded,
        lost=[
            LostView(first=first, last=last, since_ms=after_ms, until_ms=before_ms)
            for first, last, after_ms, before_ms in lost
            if after_ms < until_ms and (before_ms > since_ms or not before_ms)
        ],
    )


async def list_attempts(collector: Collector, call: Call) -> HistoryPage:
    """Attempts of one job, or of a range of time."""
    params, history = call.params, _history(collector)
    wanted = await _wanted(collector, call, delegated=False)
    limit = params.integer("limit", DEFAULT_ROWS, low=1, high=MAX_ROWS)
    after = params.integer("after", 0, low=0, high=MAX_SEQUENCE) if params.text("after") else 0
    if params.text("job"):
        job = params.integer("job", 0, low=1, high=MAX_SEQUENCE)
        rows = await history.attempts_of(job, wanted, after, limit)
    else:
        since_ms, until_ms = _range(collector, call)
        rows = await history.attempts(wanted, since_ms, until_ms, after, limit)
    return HistoryPage(attempts=rows, cursor=str(rows[-1].id) if len(rows) == limit else "")


def _history(collector: Collector) -> History:
    assert collector.history is not None  # the collector is assembled with it
    return collector.history


async def _wanted(collector: Collector, call: Call, *, delegated: bool) -> Wanted:
    """What is asked for, narrowed to what the caller may see.

    Args:
        delegated: coordinators see their accounts, where they name one.
    Raises:
        DeniedError: it names somebody else.
    """
    params, visit = call.params, call.visit
    account, user = params.text("account"), params.text("user")
    within: frozenset[str] = frozenset()
    if account:
        assert collector.accounts is not None  # the collector is assembled with it
        within = frozenset({account}) if params.flag("exact") else await collector.accounts.within(account)
    wanted = Wanted(
        within=within,
        user=user,
        queue=params.text("queue"),
        name=params.text("name"),
        node=params.text("node"),
        seen_by=visit.identity.user if visit.own_only else "",
    )
    if not visit.own_only or (not account and user in ("", visit.identity.user)):
        return wanted
    if delegated and collector.delegated and account and account in await collector.delegated.of(visit.identity):
        visit.delegated = True
        return replace(wanted, seen_by="")
    if user and user != visit.identity.user:
        visit.not_own = True
        raise DeniedError(
            f"user: '{shown(user)}' is somebody else; you are '{visit.identity.user}'",
            hint="leave it out, name an account that you coordinate, or ask an operator",
        )
    return wanted


def _range(collector: Collector, call: Call) -> tuple[int, int]:
    until_ms = call.params.integer("until_ms", collector.runtime.now_ms() + 1, low=0, high=MAX_MS)
    since_ms = call.params.integer("since_ms", max(until_ms - DEFAULT_RANGE_MS, 0), low=0, high=MAX_MS)
    if since_ms >= until_ms:
        raise SpecError(f"since_ms: {since_ms} is not before until_ms, {until_ms}")
    return since_ms, until_ms


def _one_of(kind: type[E], text: str, field: str) -> E:
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(one.value for one in kind)
        raise SpecError(f"{field}: '{shown(text)}' is none of {known}") from None


_CURSOR: Final = {"type": "string", "pattern": "^[0-9]{0,19}$"}
_ABOUT: Final = (
    Param(name="account", text="only of this account and of those below it, as the policy has them now", schema=TEXT),
    Param(name="exact", text="of `account` alone, without those below it", schema=FLAG),
    Param(name="user", text="only of this user", schema=TEXT),
    Param(name="queue", text="only of this queue", schema=TEXT),
    Param(name="name", text="only of jobs with this name", schema=TEXT),
    Param(name="node", text="only what ran on this node, in any rank", schema=TEXT),
    Param(name="since_ms", text="what ended at that time or later; default: seven days before `until_ms`", schema=INT),
    Param(name="until_ms", text="what ended before that time; default: now", schema=INT),
)
ROWS: Final = (
    Endpoint(
        method="GET",
        path="/v1/usage",
        handler=get_usage,
        right=OWNERS,
        name="getUsage",
        tag="history",
        summary="Show what ended attempts had, used and cost, summed over a range of time",
        text=(
            "An attempt counts in whole at the instant at which it ended. Users see what is theirs, and coordinators "
            "also an account that they coordinate, where they name it."
        ),
        params=(
            Param(name="by", text="what is summed by", schema={"type": "string", "enum": [one.value for one in By]}),
            Param(
                name="period",
                text="a row for each; without it, one for all of the range",
                schema={"type": "string", "enum": [one.value for one in Period]},
            ),
            Param(name="zone", text="of days, weeks and months; default: UTC", schema=TEXT, example="Europe/Rome"),
            *_ABOUT,
        ),
        result=UsageView,
        problems=("400",),
    ),
    Endpoint(
        method="GET",
        path="/v1/attempts",
        handler=list_attempts,
        right=OWNERS,
        name="listHistory",
        tag="history",
        summary="List ended attempts with what they had, used and cost, also of jobs that the controller has removed",
        params=(
            Param(name="job", text="attempts of this job, of whatever time", schema=TEXT),
            *_ABOUT,
            Param(name="after", text="`cursor` of the previous page", schema=_CURSOR),
            Param(
                name="limit",
                text="maximum number of rows on a page",
                schema={"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": DEFAULT_ROWS},
            ),
        ),
        result=HistoryPage,
        problems=("400",),
    ),
)  # fmt: skip
