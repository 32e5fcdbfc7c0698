"""The columns of `hal jobs`: what they show of a job, in which order jobs come, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import click
import pytest

from hal.cli.jobs.job_columns import COLUMNS, chosen, reason, sorted_by
from hal.cli.jobs.job_list import COLUMNS_HELP
from hal.client.rest.views import JobInfo, PlacementInfo, WaitingInfo
from hal.core.model import TaskState
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json

Hal = Callable[..., Ran]
NOON_MS = round(datetime(2030, 1, 31, 12).timestamp() * 1000)
HOUR_MS = 3_600_000


def job(number: int = 42, state: TaskState = TaskState.PENDING, **fields: object) -> JobInfo:
    return JobInfo(id=str(number), state=state, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (job(waiting=WaitingInfo(reason="limit", short="limit user cpu")), "limit user cpu"),
        (job(waiting=WaitingInfo(reason="begin-at", short="begin", starts_at_ms=NOON_MS + 6 * HOUR_MS)), "begin 18:00"),
        (
            job(waiting=WaitingInfo(reason="hours", short="queue closed", starts_at_ms=NOON_MS + 30 * HOUR_MS)),
            "queue closed 2030-02-01 18:00",
        ),
        (job(state=TaskState.HELD, waiting=WaitingInfo(reason="held", short="held")), "held"),
        (job(reason="evicted"), "evicted"),
        (job(state=TaskState.FAILED, exit_code=2), "exit code 2"),
        (job(state=TaskState.FAILED, exit_code=2, reason="lost"), "lost"),
        (job(state=TaskState.RUNNING), ""),
    ],
)
def test_why_a_job_waits_or_how_it_ended(info: JobInfo, text: str) -> None:
    """At noon; a time of another day has its date."""
    assert reason(info, NOON_MS) == text


def test_time_left_is_that_of_what_runs() -> None:
    """An hour and a quarter before its walltime; none without a placement."""
    where = PlacementInfo(nodes=("n1",), ends_by_ms=NOON_MS + 75 * 60_000)
    assert COLUMNS["left"].cell(job(state=TaskState.RUNNING, placement=where), NOON_MS) == "1:15:00"
    assert COLUMNS["left"].cell(job(), NOON_MS) == "-"


def test_jobs_are_sorted_by_several_keys_and_those_without_a_value_come_last() -> None:
    """By state, then the longest walltime first."""
    found = [
        job(1, walltime=60_000), job(2), job(3, walltime=90_000), job(4, TaskState.HELD, walltime=1_000),
    ]  # fmt: skip
    order = [info.id for info in sorted_by(found, [("state", False), ("walltime", True)], NOON_MS)]
    assert order == ["4", "3", "1", "2"]


def test_columns_may_replace_the_usual_ones_or_come_behind_them() -> None:
    """A name that is among the usual ones moves to the end."""
    assert chosen("id,Waited") == ("id", "waited")
    assert chosen("+cpu,user")[-3:] == ("reason", "cpu", "user")


def test_an_unknown_column_names_the_nearest() -> None:
    """And all that there are."""
    with pytest.raises(click.UsageError, match=r"'wait' is not a column; did you mean 'waited'\? \(columns: id, name"):
        chosen("id,wait")


def test_the_help_lists_every_column() -> None:
    """In order."""
    assert COLUMNS_HELP.removesuffix(".").split("usual ones: ")[1].split(", ") == list(COLUMNS)


def test_jobs_asks_for_what_its_options_name(serve: Serve, hal: Hal) -> None:
    """A node, and times: two hours ago as a span, the other as an instant."""
    server = serve(lambda asked: as_json({"jobs": []}))
    hal("jobs", "--all", "--node", "n1", "--since", "2h", "--until", "2030-01-31T12:00")
    query = server.asked[0].query
    assert (query["node"], query["submitted_before_ms"], query["reasons"]) == ("n1", str(NOON_MS), "true")
    assert int(query["submitted_from_ms"]) > 0


def test_wide_letters_keep_columns_aligned(serve: Serve, hal: Hal) -> None:
    """Each of the three takes two columns of a terminal."""
    rows = [{"id": "2", "state": "running", "name": "日本語"}, {"id": "1", "state": "running", "name": "abcdef"}]
    serve(lambda asked: as_json({"jobs": rows}))
    _, wide, plain = hal("jobs", "--columns", "name,state").out.splitlines()
    assert (wide, plain) == ("日本語  running", "abcdef  running")
