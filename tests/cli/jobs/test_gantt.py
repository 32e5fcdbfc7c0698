"""`hal gantt`: which bars there are, how they lie beside one another, and how they are drawn."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from hal.cli.jobs.gantt_bars import MAX_LANES, Bar, Kind, rows_of, ticks
from hal.cli.jobs.gantt_drawing import NAME_WIDTH, as_svg, as_text
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]
NOON_MS = round(datetime(2030, 1, 31, 12).timestamp() * 1000)
MINUTE_MS = 60_000


def bar(job: int, start: int, end: int, *nodes: str, kind: Kind = Kind.SUCCEEDED, name: str = "") -> Bar:
    """Minutes after noon."""
    times = (NOON_MS + start * MINUTE_MS, NOON_MS + end * MINUTE_MS)
    return Bar(str(job), None, name, "ada", nodes or ("n1",), *times, kind)


def test_bars_at_the_same_time_lie_in_lanes_of_their_own() -> None:
    """The third begins when the first has ended, and lies behind it; the gang is on both nodes."""
    bars = [bar(1, 0, 10), bar(2, 5, 20), bar(3, 10, 15), bar(4, 0, 5, "n1", "n2")]
    first, second = rows_of(bars, by_job=False)
    assert [[one.job for one in lane] for lane in first.lanes] == [["4", "2"], ["1", "3"]]
    assert (second.name, len(second.lanes), len(second.lanes[0])) == ("n2", 1, 1)


def test_rows_by_job_are_in_the_order_of_their_first_starts() -> None:
    """Job 9 began before job 3."""
    assert [row.name for row in rows_of([bar(3, 5, 6), bar(9, 1, 2), bar(3, 8, 9)], by_job=True)] == ["9", "3"]


def test_what_has_no_lane_is_counted() -> None:
    """Ten more than there are lanes."""
    (row,) = rows_of([bar(number, 0, 10) for number in range(MAX_LANES + 10)], by_job=False)
    assert (len(row.lanes), row.hidden) == (MAX_LANES, 10)


@pytest.mark.parametrize(
    ("minutes", "most", "count"), [(60, 12, 13), (60, 3, 3), (1, 6, 7), (60 * 24 * 40, 10, 5), (0, 5, 1)]
)
def test_ticks_are_round_instants(minutes: int, most: int, count: int) -> None:
    """From noon on, at most one more than asked for; forty days have a tick a week."""
    assert len(ticks(NOON_MS, NOON_MS + minutes * MINUTE_MS, most)) == count


def test_a_drawing_of_text_has_an_axis_bars_with_ids_and_now() -> None:
    """An hour in 60 columns: job 7 ran for its first half, job 8 did not succeed, job 9 has a reservation."""
    bars = [bar(7, 0, 30), bar(8, 30, 40, kind=Kind.FAILED), bar(9, 45, 60, "n2", kind=Kind.PLANNED)]
    rows = rows_of(bars, by_job=False)
    now_ms = NOON_MS + 42 * MINUTE_MS
    axis, first, second, legend = as_text(rows, NOON_MS, NOON_MS + 60 * MINUTE_MS, now_ms, NAME_WIDTH + 61)
    assert axis.split() == ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50"]
    assert first == f"{'n1':{NAME_WIDTH}} █7{'█' * 28}▓8{'▓' * 8}  │"
    assert second == f"{'n2':{NAME_WIDTH}} {' ' * 42}│  ░9{'░' * 13}"
    assert legend.split("  ")[-1] == "│ now"


def test_a_drawing_is_svg_in_which_names_are_only_text() -> None:
    """Whatever a job is called."""
    bars = [bar(1, 0, 10, name='<script>alert("x")</script>\x1b[31m'), bar(2, 0, 10, "n2", kind=Kind.RUNNING)]
    svg = as_svg(rows_of(bars, by_job=False), NOON_MS, NOON_MS + 10 * MINUTE_MS, NOON_MS, "a & b")
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert not [one for one in root.iter() if one.tag.endswith("script")]
    assert "\x1b" not in svg


def serving(asked: Asked) -> Reply:
    """A HAL on which one task ended, one runs and one has a reservation."""
    now_ms = round(time.time() * 1000)
    if asked.path == "/v1/attempts":
        row = {"sequence": 1, "job": "1", "task": 0, "attempt": 1, "state": "failed", "nodes": ["n1"], "user": "ada",
               "start_ms": now_ms - 600_000, "end_ms": now_ms - 300_000, "name": "a"}  # fmt: skip
        return as_json({"attempts": [row], "cursor": "1", "more": False, "lost": []})
    if asked.path == "/v1/jobs":
        job = {"id": "2", "state": "running", "name": "b", "user": "ada", "start_ms": now_ms - 60_000, "walltime": "5m",
               "placement": {"nodes": ["n1", "n2"], "more": False, "ends_by_ms": now_ms + 240_000}}  # fmt: skip
        return as_json({"jobs": [job] if asked.query["state"] == "active" else [{"id": "3", "state": "pending"}]})
    begins_ms = now_ms + 300_000
    reserved = {"job": "3", "task": 0, "start_ms": begins_ms, "end_ms": begins_ms + 60_000, "nodes": ["n2"]}
    return as_json({"now_ms": now_ms, "reservations": [reserved], "truncated": False})


def test_gantt_gathers_past_present_and_plan(serve: Serve, hal: Hal) -> None:
    """The running one reaches to its walltime."""
    serve(serving)
    bars = json.loads(hal("gantt", "--json").out)
    assert [(one["job"], one["kind"], one["nodes"]) for one in bars] == [
        ("1", "failed", ["n1"]), ("2", "running", ["n1", "n2"]), ("3", "planned", ["n2"]),
    ]  # fmt: skip
    assert bars[1]["end_ms"] - bars[1]["start_ms"] == 300_000


def test_gantt_draws_one_node_or_files(serve: Serve, hal: Hal, tmp_path: Path) -> None:
    """A page and a picture; on the terminal only the node that is named."""
    serve(serving)
    assert [line.split()[0] for line in hal("gantt", "--by", "job").out.splitlines()[1:4]] == ["1", "2", "3"]
    for name in ("g.svg", "g.html"):
        assert hal("gantt", "-f", tmp_path / name).code == 0
    assert "<svg" in (tmp_path / "g.html").read_text()
    assert {one["job"] for one in json.loads(hal("gantt", "--node", "n2", "--json").out)} == {"2", "3"}
    ran = hal("gantt", "-f", tmp_path / "g.pdf")
    assert (ran.code, "must end in .svg or .html" in ran.err) == (2, True)
