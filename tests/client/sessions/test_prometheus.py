"""A session's numbers in Prometheus' text format."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import msgspec
import pytest

from hal.client.sessions.listing import SessionInfo, SessionView, SlotUse, TaskGroup
from hal.client.sessions.prometheus import metrics_of
from hal.core.model.states import TaskState

LINE = re.compile(
    r'(?P<name>[a-z_]+)\{(?P<labels>(?:[a-z]+="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\} (?P<value>[0-9.e+-]+|\+Inf)'
)
EVIL = 'a"b\\c\nd\x1b[2J'
PROMTOOL = shutil.which("promtool")


def view(name: str, **changes: Any) -> SessionView:
    session = SessionInfo(
        name=name,
        user="ann",
        queue="main",
        broker="7",
        state=TaskState.RUNNING,
        slots="8",
        running=1,
        most=4,
        submit_ms=1,
    )
    slot = SlotUse(worker="n1:3", task=2, done=6, held=1, use=0.5, mean_us=500_000, since_s=6, silent_s=0.0)
    one = SessionView(
        session=session,
        uptime_s=9,
        clients=1,
        waiting=5,
        unanswered=6,
        done=7,
        rate=0.8,
        within_ms={"1": 2, "4": 4, str(1 << 23): 1},
        slots=(slot,),
        late=(),
        ended={"done": 6, "failed": 1},
        retried=2,
        lost_workers=3,
        latency_ms=10_500,
        seconds=(1,),
        minutes=(1,),
        functions=(TaskGroup(name="fit", done=6, failed=1, retried=2, busy_us=1_500_000),),
        tags=(TaskGroup(name="night", done=1, failed=0, retried=0, busy_us=1),),
    )
    return msgspec.structs.replace(one, **changes)


def samples(text: str) -> dict[str, float]:
    """By name and labels; every line must be well-formed, of a metric that was described before, and there once."""
    found: dict[str, float] = {}
    described: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            described.add(line.split()[2])
            continue
        match = LINE.fullmatch(line)
        assert match, line
        name = re.sub(r"_(bucket|sum|count)$", "", match["name"])
        assert name in described, line
        key = f"{match['name']}{{{match['labels']}}}"
        assert key not in found, line
        found[key] = float(match["value"].replace("Inf", "inf"))
    return found


def test_a_histogram_counts_all_tasks_up_to_each_bound() -> None:
    """What took longer than any bound is only in the last bucket."""
    found = samples(metrics_of([view("fit")]))
    head = 'hal_session_task_latency_seconds_bucket{session="fit",user="ann",le='
    assert [found[f'{head}"{bound}"}}'] for bound in ("0.001", "0.002", "0.004", "4194.304", "+Inf")] == [2, 2, 6, 6, 7]
    assert found['hal_session_task_latency_seconds_sum{session="fit",user="ann"}'] == 10.5
    assert found['hal_session_task_latency_seconds_count{session="fit",user="ann"}'] == 7


def test_numbers_have_their_labels() -> None:
    found = samples(metrics_of([view("fit"), view("more")]))
    assert found['hal_session_tasks_total{session="more",user="ann",status="failed"}'] == 1
    assert found['hal_session_function_busy_seconds_total{session="fit",user="ann",function="fit"}'] == 1.5
    assert found['hal_session_slot_busy_seconds_total{session="fit",user="ann",slot="2",worker="n1:3"}'] == 3
    assert found['hal_session_tag_tasks_total{session="fit",user="ann",tag="night",status="done"}'] == 1
    assert found['hal_session_slots_busy{session="fit",user="ann"}'] == 1


def test_names_from_people_stay_inside_their_quotes() -> None:
    """And act on no terminal."""
    text = metrics_of([view("fit", functions=(TaskGroup(name=EVIL, done=1, failed=0, retried=0, busy_us=1),))])
    assert samples(text)
    assert "\x1b" not in text
    assert r'function="a\"b\\c\\nd\\x1b[2J"' in text


def test_no_session_has_no_metrics() -> None:
    assert metrics_of([]) == ""


@pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed")
def test_prometheus_itself_finds_no_fault() -> None:
    """Not even one of style."""
    assert PROMTOOL is not None
    text = metrics_of(
        [view("fit"), view("more", functions=(TaskGroup(name=EVIL, done=1, failed=0, retried=0, busy_us=1),))]
    )
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
