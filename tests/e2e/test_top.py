"""`hal top` on a real HAL: driven by textual's pilot, and as a program on a terminal of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import RichLog

from hal.cli.top.app import TopApp
from hal.cli.top.row_table import RowTable
from hal.client.addresses.address import Address
from hal.client.async_client import AsyncClient
from hal.client.sync_client import Client
from tests.e2e.conftest import DEADLINE_S, LiveHal, Ran, until
from tests.e2e.terminal import Terminal
from tests.e2e.test_documents import run_page

pytestmark = pytest.mark.slow
SIZE = (80, 24)
EVERY_S = 0.1
UNTIL_SHOWN_S = 0.02


def shown(app: TopApp) -> str:
    """The text on the screen."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


@asynccontextmanager
async def top_of(live: LiveHal, text: str = "") -> AsyncIterator[tuple[TopApp, Pilot[int]]]:
    """The program on a screen of 80 x 24, once it has shown something."""
    async with AsyncClient(Address(home=live.home), reconnect_s=0.0) as client:
        app = TopApp(client, where="here", every_s=EVERY_S, most_jobs=100, user="root", text=text)
        async with app.run_test(size=SIZE) as pilot:
            await see(app, pilot, lambda: app.rounds > 0)
            yield app, pilot


async def see(app: TopApp, pilot: Pilot[int], condition: Callable[[], object]) -> None:
    """Wait until the screen is so.

    Raises:
        AssertionError: it did not become so.
    """
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, shown(app)
        await pilot.pause(UNTIL_SHOWN_S)


async def see_text(app: TopApp, pilot: Pilot[int], text: str) -> None:
    await see(app, pilot, lambda: text in shown(app))


def test_each_list_is_shown_and_refreshed(shared_hal: LiveHal, client: Client) -> None:
    """A job that is submitted meanwhile comes by itself; nothing is wider than the screen."""

    async def look() -> None:
        async with top_of(shared_hal) as (app, pilot):
            job = client.submit({"name": "seen", "command": ["sleep", "1000"]})
            await see_text(app, pilot, "seen")
            for key, text in (("2", "n3"), ("3", "OLDEST"), ("4", "BROKER"), ("1", "seen")):
                await pilot.press(key)
                await see_text(app, pilot, text)
                assert max(map(len, shown(app).splitlines())) <= SIZE[0]
            client.cancel(job.id)
            await see(app, pilot, lambda: "seen" not in shown(app))

    asyncio.run(look())


def test_a_job_is_cancelled_held_and_released_only_after_yes(shared_hal: LiveHal, client: Client) -> None:
    async def act() -> None:
        job = client.submit({"name": "changed", "command": ["true"], "hold": True})
        async with top_of(shared_hal, "name=changed") as (app, pilot):
            await see_text(app, pilot, "held")
            await pilot.press("c")
            await see_text(app, pilot, f"cancel job {job.id}?")
            await pilot.press("n")
            await see(app, pilot, lambda: "cancel job" not in shown(app))
            assert job.refresh().state == "held"
            await pilot.press("c")
            await see_text(app, pilot, f"cancel job {job.id}?")
            await pilot.press("y")
            await see_text(app, pilot, "cancel: ")
            until(lambda: job.refresh().state == "cancelled", "it was not cancelled")

    asyncio.run(act())


def test_marked_jobs_are_changed_together(shared_hal: LiveHal, client: Client) -> None:
    async def act() -> None:
        jobs = [client.submit({"name": "both", "command": ["true"], "hold": True}) for _ in range(2)]
        async with top_of(shared_hal, "name=both") as (app, pilot):
            await see(app, pilot, lambda: len(app.query_one(RowTable).rows) == 2)
            await pilot.press("space", "space", "r")
            await see_text(app, pilot, f"release jobs {jobs[0].id}, {jobs[1].id}?")
            await pilot.press("y")
            client.wait_all(jobs, DEADLINE_S)
        assert [job.info.state for job in jobs] == ["succeeded", "succeeded"]

    asyncio.run(act())


def test_a_change_that_is_refused_changes_nothing(shared_hal: LiveHal, client: Client) -> None:
    """The controller refuses to hold a job that has ended, and so no question is asked."""

    async def act() -> None:
        job = client.submit({"name": "ended", "command": ["true"]})
        job.wait(DEADLINE_S)
        async with top_of(shared_hal, "name=ended state=succeeded") as (app, pilot):
            await see_text(app, pilot, "succeeded")
            await pilot.press("h")
            await see_text(app, pilot, "! ")

    asyncio.run(act())


def test_why_details_and_output_are_shown(shared_hal: LiveHal, client: Client) -> None:
    """What a job writes is followed, and cannot act on the terminal."""

    async def look() -> None:
        script = "printf 'one\\033[2J\\n'; read word < /proc/self/fd/0; sleep 1000"
        waits = client.submit({"name": "waits", "command": ["true"], "hold": True})
        talks = client.submit({"name": "talks", "command": ["sh", "-c", script]})
        async with top_of(shared_hal, "name=waits") as (app, pilot):
            await see_text(app, pilot, "waits")
            await pilot.press("w")
            await see_text(app, pilot, f"hal release {waits.id}")
            await pilot.press("q", "enter")
            await see_text(app, pilot, "submitted")
            await pilot.press("q")
        async with top_of(shared_hal, "name=talks") as (app, pilot):
            await see_text(app, pilot, "talks")
            await pilot.press("l")
            await see(app, pilot, lambda: app.screen.query(RichLog))
            await see_text(app, pilot, "one\\x1b[2J")
            await pilot.press("q")
        client.cancel(waits.id, talks.id)

    asyncio.run(look())


def test_a_filter_is_typed_and_taken_off(shared_hal: LiveHal, client: Client) -> None:
    async def act() -> None:
        jobs = [client.submit({"name": name, "command": ["true"], "hold": True}) for name in ("apple", "pear")]
        async with top_of(shared_hal) as (app, pilot):
            await see_text(app, pilot, "apple")
            await pilot.press("slash", *"pear", "enter")
            await see(app, pilot, lambda: "apple" not in shown(app) and " pear" in shown(app))
            await pilot.press("escape")
            await see_text(app, pilot, "apple")
            await pilot.press("slash", *"state=nonsense", "enter")
            await see_text(app, pilot, "nonsense")
            await see_text(app, pilot, "trying again")
        client.cancel(*(job.id for job in jobs))

    asyncio.run(act())


def test_a_node_is_drained_and_opened_again(shared_hal: LiveHal, client: Client) -> None:
    async def act() -> None:
        async with top_of(shared_hal) as (app, pilot):
            await pilot.press("2")
            await see_text(app, pilot, "n3")
            await pilot.press("end", "d")
            await see_text(app, pilot, "drain node n3?")
            await pilot.press("y")
            until(lambda: client.node("n3").state != "up", "it was not drained")
            await see_text(app, pilot, "drain: ")
            await pilot.press("R")
            await see_text(app, pilot, "resume node n3?")
            await pilot.press("y")
            until(lambda: client.node("n3").state == "up", "it was not opened")

    asyncio.run(act())


def test_a_controller_that_goes_away_is_shown_and_found_again(own_hal: LiveHal) -> None:
    own_hal.up()

    async def look() -> None:
        async with top_of(own_hal) as (app, pilot):
            await see_text(app, pilot, "1 up")
            await asyncio.to_thread(own_hal.run, "down", check=True)
            await see_text(app, pilot, "trying again")
            assert "1 up" in shown(app)
            await asyncio.to_thread(own_hal.up)
            await see(app, pilot, lambda: "trying again" not in shown(app))

    asyncio.run(look())


@pytest.mark.parametrize("ending", ["q", "\x03", signal.SIGTERM])
def test_the_terminal_is_restored_however_it_ends(shared_hal: LiveHal, ending: str | int) -> None:
    """Its modes are as they were, the alternate screen is left, the cursor is back."""
    command = shared_hal.command("top")
    with Terminal(command, {**shared_hal.environment, "NO_COLOR": "1"}) as terminal:
        before = termios.tcgetattr(terminal._fd)
        terminal.resize(24, 80)
        terminal.read_until("jobs:")
        assert termios.tcgetattr(terminal._fd)[3] != before[3]
        if isinstance(ending, str):
            terminal.type(ending)
        else:
            os.kill(terminal.pid, ending)
        terminal.read_until("\x1b[?1049l")
        terminal.read_until("\x1b[?25h")
        after = termios.tcgetattr(terminal._fd)
        code = terminal.wait()
    assert (code, after[3]) == (0 if isinstance(ending, str) else 128 + ending, before[3])
    assert "\x1b[31m" not in terminal.shown
    assert "\x1b[?1000h" not in terminal.shown  # the mouse selects text, as ever


def test_one_frame_is_printed_for_scripts(shared_hal: LiveHal, client: Client, hal: Callable[..., Ran]) -> None:
    job = client.submit({"name": "framed", "command": ["true"], "hold": True})
    ran = hal("top", "--once", "name=framed")
    assert (ran.code, "framed" in ran.out, "\x1b" in ran.out, max(map(len, ran.out.splitlines())) <= 80) == (
        0,
        True,
        False,
        True,
    ), ran.out
    frame = json.loads(hal("top", "--once", "-o", "json", "name=framed").out)
    assert ([one["id"] for one in frame["jobs"]], frame["health"]["nodes"]) == ([job.id], {"up": 3})
    assert [one["name"] for one in json.loads(hal("top", "--json", "--view", "nodes").out)["nodes"]] == [
        "n1",
        "n2",
        "n3",
    ]
    client.cancel(job.id)


def test_without_a_terminal_it_says_what_to_type(hal: Callable[..., Ran]) -> None:
    ran = hal("top")
    assert (ran.code, "--once" in ran.err) == (2, True)


def test_the_commands_of_the_page_about_it_work(shared_hal: LiveHal, tmp_path: Path) -> None:
    """docs/top.md."""
    assert "jobs:" in run_page("docs/top.md", shared_hal, tmp_path)
