"""Follow: what a program that reads ended attempts and events may rely on; see docs/events.md.

`python -m hal.conformance.plane.follow URL` checks a running controller, with the operator's token in $HAL_TOKEN. It
submits a few short jobs, which need a node with a cpu to spare, and registers a reader, which it removes again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from hal.conformance.answers import NonConformance
from hal.conformance.plane.command_line import checks_parser, report, rest_at
from hal.conformance.plane.rest import Rest

READER: Final = "hal-conformance"
PATH: Final = f"/v1/readers/{READER}"
WITHIN_S: Final = 60.0
"""Long enough for a machine that is busy; what has not happened then is believed never to happen."""
PAGE: Final = 1_000


class Work(Struct, frozen=True, kw_only=True):
    """What the checks run."""

    succeeds: Sequence[str] = ("true",)
    fails: Sequence[str] = ("false",)


def check(rest: Rest, stranger: Rest | None = None, *, work: Work | None = None) -> None:
    """Check every guarantee, with an operator's rights.

    Args:
        stranger: the same controller, as a user who is no operator and has run nothing.
        work: the commands to run.
    Raises:
        NonConformance: one does not hold.
    """
    for guarantee in CHECKS:
        rest.ask("DELETE", PATH)
        try:
            guarantee(rest, work or Work())
        finally:
            rest.ask("DELETE", PATH)
    if stranger is not None:
        strangers_see_nothing(rest, stranger, work or Work())


# ── ended attempts ────────────────────────────────────────────────────────────────────────────────────────────────


def each_end_comes_once_and_in_order(rest: Rest, work: Work) -> None:
    """Whoever reads on, one row at a time, gets every end, with ascending numbers; what is missing is named."""
    begin = _newest(rest)
    jobs = [_ended(rest, work.succeeds) for _ in range(3)]
    rows, expected = [], begin + 1
    cursor = str(begin)
    while True:
        page = _page(rest, ended_after=cursor, limit=1)
        lost = {number for first, last in page["lost"] for number in range(first, last + 1)}
        for row in page["attempts"]:
            _require(set(range(expected, row["sequence"])) <= lost, f"{expected} is neither given nor named as lost")
            expected = row["sequence"] + 1
            rows.append(row)
        if not page["more"]:
            break
        _require(int(page["cursor"]) > int(cursor), f"the cursor {cursor} does not ascend")
        cursor = page["cursor"]
    found = [row["job"] for row in rows if row["job"] in jobs]
    _require(found == jobs, f"jobs that ended as {jobs} are read as {found}")


def a_page_is_the_same_when_it_is_read_again(rest: Rest, work: Work) -> None:
    """An end is final, and keeps its number."""
    begin = str(_newest(rest))
    _ended(rest, work.succeeds)
    first = _page(rest, ended_after=begin, limit=1)
    _ended(rest, work.succeeds)
    _require(_page(rest, ended_after=begin, limit=1)["attempts"] == first["attempts"], "a row has changed")


def filters_select_of_the_whole(rest: Rest, work: Work) -> None:
    """By state, job, user, node and time: the rows that a reader of everything would select."""
    begin = str(_newest(rest))
    _ended(rest, work.succeeds)
    failed = _ended(rest, work.fails)
    whole = _all(rest, ended_after=begin)
    bad = next(row for row in whole if row["job"] == failed)
    for params, chosen in (
        ({"state": "failed"}, lambda row: row["state"] == "failed"),
        ({"state": "failed,lost"}, lambda row: row["state"] in ("failed", "lost")),
        ({"job": failed}, lambda row: row["job"] == failed),
        ({"user": bad["user"]}, lambda row: row["user"] == bad["user"]),
        ({"node": bad["nodes"][0]}, lambda row: bad["nodes"][0] in row["nodes"]),
        ({"since_ms": bad["recorded_ms"]}, lambda row: row["recorded_ms"] >= bad["recorded_ms"]),
        ({"until_ms": bad["recorded_ms"]}, lambda row: row["recorded_ms"] < bad["recorded_ms"]),
    ):
        last = whole[-1]["sequence"]
        found = [row for row in _all(rest, ended_after=begin, **params) if row["sequence"] <= last]
        _require(found == [row for row in whole if chosen(row)], f"{params} selects other rows than a reader would")


def the_instant_of_record_never_descends(rest: Rest, work: Work) -> None:
    """And no attempt ends after it was recorded."""
    _ended(rest, work.succeeds)
    rows = _all(rest, newest=1)
    instants = [row["recorded_ms"] for row in rows]
    _require(instants == sorted(instants), "recorded_ms descends")
    _require(all(row["end_ms"] <= row["recorded_ms"] for row in rows), "an end is recorded before it happened")


def who_waits_is_answered(rest: Rest, work: Work) -> None:
    """With what comes; and with an empty page and a cursor where nothing does."""
    begin = str(_newest(rest))
    job = _submitted(rest, work.succeeds)
    deadline_s = time.monotonic() + WITHIN_S
    cursor, found = begin, False
    while not found:
        _require(time.monotonic() < deadline_s, f"the end of job {job} does not come to who waits")
        page = _page(rest, ended_after=cursor, wait=5)
        found = any(row["job"] == job for row in page["attempts"])
        cursor = page["cursor"]
    idle = _page(rest, ended_after=cursor, wait=0.05, state="refused")
    _require(int(idle["cursor"]) >= int(cursor), "an empty page goes back")


def a_cursor_ahead_of_the_store_is_refused(rest: Rest, work: Work) -> None:
    """It is from another store: whoever holds it must know."""
    rest.refused("GET", f"/v1/attempts?ended_after={_newest(rest) + 10**9}", None, 409)


# ── readers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def a_reader_continues_where_it_was(rest: Rest, work: Work) -> None:
    """Reading on acknowledges; without a cursor it continues behind what was acknowledged."""
    rest.good("PUT", PATH, {})
    jobs = [_ended(rest, work.succeeds) for _ in range(2)]
    first = _until(rest, jobs[0], reader=READER)
    _page(rest, reader=READER, ended_after=str(first))
    rows = _all_of(rest, {"reader": READER})
    _require(all(row["sequence"] > first for row in rows), "what was acknowledged is read again")
    _require(any(row["job"] == jobs[1] for row in rows), "what was not acknowledged is missing")


def a_position_never_goes_back(rest: Rest, work: Work) -> None:
    """Neither by registering again, nor by an older cursor; and it never goes ahead."""
    _ended(rest, work.succeeds)
    rest.good("PUT", PATH, {})
    newest = _newest(rest)
    acknowledged = rest.good("POST", f"{PATH}/acknowledge", {"attempts": str(newest)})
    _require(acknowledged["attempts"]["read"] == newest, "an acknowledged position is not the reader's")
    rest.good("POST", f"{PATH}/acknowledge", {"attempts": "0"})
    again = rest.good("PUT", PATH, {"begin": "oldest"})
    _require(again["attempts"]["read"] >= newest, "a position went back")
    rest.refused("POST", f"{PATH}/acknowledge", {"attempts": str(newest + 10**9)}, 409)


def a_reader_follows_what_it_registered_for(rest: Rest, work: Work) -> None:
    """The other feed is refused; who was removed is unknown."""
    rest.good("PUT", PATH, {"feeds": ["attempts"]})
    rest.refused("GET", f"/v1/events?reader={READER}", None, 409)
    _require(any(one["name"] == READER for one in rest.good("GET", "/v1/readers")["readers"]), "it is not listed")
    rest.good("DELETE", PATH)
    rest.refused("GET", f"/v1/attempts?reader={READER}", None, 404)
    rest.refused("DELETE", PATH, None, 404)


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────


def events_have_no_gap(rest: Rest, work: Work) -> None:
    """Numbers follow one another; what is cut says so; the ends of attempts are among them."""
    rest.good("PUT", PATH, {"feeds": ["events"]})
    after = next(one for one in rest.good("GET", "/v1/readers")["readers"] if one["name"] == READER)["events"]["read"]
    job = _ended(rest, work.succeeds)
    kinds: list[str] = []
    while events := rest.good("GET", f"/v1/events?after={after}&limit=100")["events"]:
        for event in events:
            _require(event["sequence"] == after + 1, f"event {after + 1} is missing")
            after = event["sequence"]
            payload = event.get("payload", {})
            cut = "jobs_total" in payload or len(event.get("jobs", ())) >= PAGE
            _require(not cut or payload.get("truncated") is True, f"event {after} is cut and does not say so")
            if int(job) in event.get("jobs", ()):
                kinds.append(event["kind"])
    _require("attempts-ended" in kinds, f"of job {job} the feed has {kinds}")


def strangers_see_nothing(rest: Rest, stranger: Rest, work: Work) -> None:
    """A user reads neither attempts nor events of others, and registers no reader."""
    begin = _newest(rest)
    job = _ended(rest, work.succeeds)
    _until(rest, job, ended_after=str(begin))
    rows = stranger.good("GET", f"/v1/attempts?ended_after={begin}")["attempts"]
    _require(not rows, f"a user who has run nothing reads {rows}")
    rest.good("PUT", PATH, {})
    for method, path, body in (
        ("GET", f"/v1/attempts?reader={READER}", None),
        ("GET", "/v1/events", None),
        ("GET", "/v1/readers", None),
        ("PUT", PATH, {}),
        ("POST", f"{PATH}/acknowledge", {"events": 1}),
        ("DELETE", PATH, None),
    ):
        stranger.refused(method, path, body, 403)
    rest.good("DELETE", PATH)


CHECKS: Final[tuple[Callable[[Rest, Work], None], ...]] = (
    each_end_comes_once_and_in_order,
    a_page_is_the_same_when_it_is_read_again,
    filters_select_of_the_whole,
    the_instant_of_record_never_descends,
    who_waits_is_answered,
    a_cursor_ahead_of_the_store_is_refused,
    a_reader_continues_where_it_was,
    a_position_never_goes_back,
    a_reader_follows_what_it_registered_for,
    events_have_no_gap,
)


def _page(rest: Rest, **params: Any) -> Any:
    return rest.good("GET", f"/v1/attempts?{urlencode(params)}")


def _newest(rest: Rest) -> int:
    return int(_page(rest, newest=1, limit=1)["cursor"])


def _all(rest: Rest, **params: Any) -> list[Any]:
    """All rows behind a cursor; with `newest` the last page."""
    return _page(rest, **params)["attempts"] if "newest" in params else _all_of(rest, params)


def _all_of(rest: Rest, params: dict[str, Any]) -> list[Any]:
    rows: list[Any] = []
    while True:
        page = _page(rest, **params, limit=PAGE)
        rows += page["attempts"]
        if not page["more"]:
            return rows
        params = {**params, "ended_after": page["cursor"]}


def _until(rest: Rest, job: str, **params: Any) -> int:
    """The number under which the job's attempt ended."""
    for row in _all_of(rest, params):
        if row["job"] == job:
            number: int = row["sequence"]
            return number
    raise NonConformance(f"follow: the end of job {job} is not among the ended attempts")


def _submitted(rest: Rest, command: Sequence[str]) -> str:
    made = rest.good("POST", "/v1/jobs", {"command": list(command), "name": READER, "walltime": "1m"})
    job: str = made["ids"][0]
    return job


def _ended(rest: Rest, command: Sequence[str]) -> str:
    """A job that has run to its end."""
    job = _submitted(rest, command)
    view = rest.good("GET", f"/v1/jobs/{job}/wait?timeout_s={WITHIN_S:.0f}")
    _require(view["end_ms"] is not None, f"job {job} has not ended within {WITHIN_S:.0f} s")
    return job


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NonConformance(f"follow: {otherwise}")


def main(argv: Sequence[str] | None = None) -> int:
    """Check a controller and print the result. Exit code 0: it conforms; 1: it does not."""
    url = checks_parser("follow", __doc__).parse_args(argv).url
    return report(url, lambda: check(rest_at(url)), f"{len(CHECKS)} guarantees of following")


if __name__ == "__main__":
    sys.exit(main())
