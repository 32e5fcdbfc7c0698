"""The endpoint of ended attempts: pages in commit order, behind a cursor."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from hal.core.model import SpecError
from hal.daemons.controller.api.endpoints.endpoint import FLAG, INT, TEXT, Endpoint, Param
from hal.daemons.controller.api.endpoints.readers import READER, read_on
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_user
from hal.daemons.controller.api.requests.parameters import MAX_SEQUENCE, attempt_states_of, job_id
from hal.daemons.controller.service.attempts import AttemptsPage
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.answers import answer_in_parts
from hal.rest.rights import OWNERS
from hal.store import EndFilter

DEFAULT_ROWS: Final = 1_000
MAX_ROWS: Final = 5_000
"""Rows of a page."""
MAX_POLL_S: Final = 60.0
MAX_MS: Final = 1 << 53


async def list_attempts(api: ControllerApi, call: Call) -> object:
    """A page, encoded beside the loop."""
    params = call.params
    wanted = EndFilter(
        states=attempt_states_of(params.text("state")),
        job=job_id(params.text("job")) if params.text("job") else None,
        user=params.text("user"),
        node=params.text("node"),
        since_ms=params.optional_integer("since_ms", low=0, high=MAX_MS),
        until_ms=params.optional_integer("until_ms", low=0, high=MAX_MS),
    )
    if call.visit.own_only:
        check_user(call.visit, wanted.user, "user")
        wanted = replace(wanted, user=call.visit.identity.user)
    limit = params.integer("limit", DEFAULT_ROWS, low=1, high=MAX_ROWS)
    wait_s = params.seconds("wait", 0.0)
    if wait_s > MAX_POLL_S:
        raise SpecError(f"wait: {wait_s:g} is out of range", hint=f"at most {MAX_POLL_S:g} seconds")
    newest, reader = params.flag("newest"), params.text("reader")
    after = params.optional_integer("ended_after", low=0, high=MAX_SEQUENCE)
    if newest and (after is not None or reader or wait_s):
        raise SpecError("newest: excludes ended_after, reader and wait", hint="read on behind the answer's cursor")
    if reader:
        after = read_on(api, call, reader, "attempts", after)
    page = await api.attempts.page(wanted, after or 0, limit, wait_s=wait_s, newest=newest, asked=params.flag("asked"))
    return answer_in_parts(call, api.runtime, page.parts)


ATTEMPTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/attempts",
        handler=list_attempts,
        right=OWNERS,
        name="listAttempts",
        tag="tasks",
        summary="List ended attempts in commit order",
        text=(
            "`cursor` is always given: `ended_after` of the next page. Whoever reads on gets each attempt once, in the "
            "order of the commits that ended them; `lost` names what is no longer kept. A page with filters may have "
            "few rows, or none, and `more` says whether there is more to read at once."
        ),
        params=(
            Param(
                name="ended_after",
                text="only what is behind this cursor; without it, from the oldest that is kept",
                schema={"type": "string", "pattern": "^[0-9]{0,19}$"},
            ),
            Param(
                name="state",
                text="comma list of succeeded, failed, timed-out, cancelled, refused, preempted, lost, out-of-memory",
                schema=TEXT,
                example="failed,lost",
            ),
            Param(name="job", text="attempts of this job", schema=TEXT),
            Param(name="user", text="attempts of this user's jobs", schema=TEXT),
            Param(name="node", text="attempts that ran on this node, in any rank", schema=TEXT),
            Param(name="since_ms", text="recorded at that time or later", schema=INT),
            Param(name="until_ms", text="recorded before that time", schema=INT),
            Param(name="asked", text="also what each job asked for, and when it was submitted", schema=FLAG),
            Param(name="newest", text="the last rows instead of the first", schema={"type": "string"}),
            Param(
                name="wait",
                text="seconds to wait where there is nothing yet",
                schema={"type": "number", "minimum": 0, "maximum": MAX_POLL_S, "default": 0},
            ),
            READER,
            Param(
                name="limit",
                text="maximum number of rows on a page",
                schema={"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": DEFAULT_ROWS},
            ),
        ),
        result=AttemptsPage,
        problems=("400", "404", "409", "503"),
    ),
)
