"""The lists of `hal top`: filters, order, what fits into a line, and the requests behind them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace

from hal.cli.top.frame import header_lines, table_lines
from hal.cli.top.listings import JOBS, NODES, bar, chosen_rows, next_order, read_filter
from hal.cli.top.reading import FIRST_RETRY_S, MAX_RETRY_S, REST_PART, Contact, Sweep
from hal.client.rest.calls import Page
from hal.client.rest.views import HealthInfo, JobInfo, NodeInfo
from hal.core.model import NodeState, TaskState, UnreachableError

NOW_MS = 1_800_000_000_000


def job(number: int, state: TaskState = TaskState.PENDING, **fields: object) -> JobInfo:
    return JobInfo(id=str(number), state=state, **fields)  # type: ignore[arg-type]


def test_a_filter_is_what_the_controller_selects_by_and_words_to_look_for() -> None:
    assert read_filter("User=alice fit state=running x=1") == ({"user": "alice", "state": "running"}, ("fit", "x=1"))


def test_rows_are_kept_whose_cells_have_all_words() -> None:
    jobs = [job(1, name="fit", user="alice"), job(2, name="fit", user="bob"), job(3, name="eval", user="alice")]
    assert [key for key, _ in chosen_rows(JOBS, jobs, ("fit", "alice"), "", NOW_MS)] == ["1"]


def test_running_jobs_come_before_waiting_ones_in_the_order_in_which_they_came() -> None:
    jobs = [job(4), job(3, TaskState.HELD), job(2), job(1, TaskState.RUNNING)]
    assert [key for key, _ in chosen_rows(JOBS, jobs, (), JOBS.order, NOW_MS)] == ["1", "4", "2", "3"]


def test_what_has_no_value_comes_last_whatever_the_direction() -> None:
    nodes = [
        NodeInfo(name="a", state=NodeState.UP, capacity={"cpu": 4}, free={"cpu": 1}),
        NodeInfo(name="b", state=NodeState.UP),
        NodeInfo(name="c", state=NodeState.UP, capacity={"cpu": 4}, free={"cpu": 4}),
    ]
    assert [key for key, _ in chosen_rows(NODES, nodes, (), "USE", NOW_MS)] == ["c", "a", "b"]
    assert [key for key, _ in chosen_rows(NODES, nodes, (), "-USE", NOW_MS)] == ["a", "c", "b"]


def test_the_order_goes_through_all_columns_and_back() -> None:
    seen = [""]
    while (order := next_order(NODES, seen[-1])) != "":
        seen.append(order)
    assert seen[1:] == [column.title for column in NODES.columns]


def test_a_bar_is_as_long_as_the_part_and_nothing_where_there_is_nothing() -> None:
    assert (bar(0.5), bar(None)) == ("####....  50%", "-")


def test_text_of_others_cannot_act_on_the_terminal_and_fits() -> None:
    """Escapes are text, wide letters take two columns, no line is longer than the window."""
    found = [("1", job(1, name="\x1b[2J\x07evil", user="漢字漢字", reason="\u202eabc"))]
    heading, lines, _ = table_lines(JOBS, found, NOW_MS, 80)
    assert "\\x1b[2J" in lines[0]
    assert not any(ord(char) < 32 or char == "\u202e" for char in heading + lines[0])


def test_a_sweep_keeps_what_it_has_not_read_again_and_drops_what_is_gone() -> None:
    """Two pages a pass; b is gone in the second pass, and shown until its page is read."""
    there = [["a", "b"], ["c"]]

    async def page(cursor: str) -> Page[str]:
        at = int(cursor or 0)
        return Page(tuple(there[at]), str(at + 1) if at + 1 < len(there) else "")

    async def passes() -> list[list[str]]:
        sweep, seen = Sweep(page, str, 100), []
        for step in range(4):
            if step == 2:
                there[0].remove("b")
            await sweep.step()
            seen.append(sorted(sweep.rows))
        return seen

    assert asyncio.run(passes()) == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"], ["a", "c"]]


def test_a_sweep_begins_again_where_it_has_as_many_as_it_keeps() -> None:
    asked: list[str] = []

    async def page(cursor: str) -> Page[str]:
        asked.append(cursor)
        return Page((f"row{cursor}",), str(int(cursor or 0) + 1))

    async def steps() -> bool:
        sweep = Sweep(page, str, 2)
        for _ in range(3):
            await sweep.step()
        return sweep.cut

    assert (asyncio.run(steps()), asked) == (True, ["", "1", ""])


def test_a_slow_controller_is_asked_less_often_and_a_silent_one_ever_less() -> None:
    contact = Contact(1.0)
    assert (contact.answered(0.1), contact.answered(2.0)) == (0.9, REST_PART * 2.0)
    waits = [contact.failed(UnreachableError("gone"), 7.0) for _ in range(6)]
    assert (waits[0], waits[-1], contact.since_s) == (max(1.0, FIRST_RETRY_S), MAX_RETRY_S, 7.0)


def test_other_commands_do_not_load_textual() -> None:
    """It costs more than they do."""
    code = "import sys, hal.cli.main, hal.cli.top.top, hal.cli.jobs.job_list; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_header_of_a_large_cluster_fits_into_eighty_columns() -> None:
    """5,000 nodes of 64 cpus and 8 GPUs."""
    nodes = [
        NodeInfo(
            name=f"n{number:04}",
            state=NodeState.UP,
            capacity={"cpu": 64_000, "memory": 1 << 38, "gpu": 8_000},
            free={"cpu": 32_000, "memory": 1 << 37, "gpu": 4_000},
        )
        for number in range(5_000)
    ]

    health = HealthInfo(status="ok", version="0.1.0", nodes={"up": 5_000}, jobs={"running": 9_999, "pending": 100_000})
    lines = header_lines(SimpleNamespace(health=health, nodes=nodes), "hpc.example.org")  # type: ignore[arg-type]
    assert lines[1] == "cpu ####....  50%  memory ####....  50%  gpu ####....  50% 20000/40000"
    assert max(map(len, lines)) <= 80
