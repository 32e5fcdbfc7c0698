"""Every page in Chromium, before 5,000 nodes and 5,000 jobs on a real controller."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from hal.client.rest import access_calls
from tests.web.browser import Site, Visitor, chromium, free_port, need_chromium, site

pytestmark = pytest.mark.slow

NODES: Final = 5_000
JOBS: Final = 5_000
HOSTILE: Final = "<img/src=x/onerror=alert(1)>"
PAGES: Final = (
    "/",
    "/jobs",
    "/jobs/1",
    "/jobs/1/spec",
    "/queues",
    "/queues/default",
    "/nodes",
    "/nodes/n0001",
    "/timeline",
    "/shares",
    "/bookings",
    "/sessions",
)
BOOKING: Final = """
[bookings.course]
start = "2030-01-07T09:00"
duration = "2h"
repeat = "weekly"
nodes = ["n0001"]
accounts = ["physics"]
"""
SERIOUS: Final = ("serious", "critical")


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    """One site for all tests here."""
    need_chromium()
    home = Path(tempfile.mkdtemp(prefix="hal-w-"))
    try:
        with site(
            home,
            nodes=NODES,
            jobs=JOBS,
            port=free_port(),
            config=BOOKING,
        ) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need_chromium()
    with chromium() as made:
        yield made


@pytest.fixture
def owner(place: Site, browser: Browser) -> Iterator[Visitor]:
    """Somebody who has signed in by a link; at the end nothing has gone wrong in their browser."""
    visitor = Visitor(browser, place.origin)
    visitor.sign_in(place.link())
    yield visitor
    visitor.context.close()
    assert (visitor.elsewhere, visitor.errors) == ([], [])


def violations(visitor: Visitor) -> list[Any]:
    """What axe finds that is serious."""
    found = Axe().run(visitor.page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in SERIOUS]


def test_a_sign_in_link_leads_to_the_overview(place: Site, browser: Browser) -> None:
    """The key is gone from the address; the map is drawn."""
    visitor = Visitor(browser, place.origin)
    visitor.page.goto(place.link())
    expect(visitor.page.locator(".map canvas")).to_be_visible()
    expect(visitor.page).to_have_url(f"{visitor.origin}/")
    visitor.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_drawn_and_accessible_in_both_themes(owner: Visitor, theme: str) -> None:
    """Each has its heading and no fault, asks no other place, and axe finds nothing serious."""
    owner.page.evaluate("theme => localStorage.setItem('hal-theme', theme)", theme)
    for path in PAGES:
        owner.go(path)
        assert owner.page.evaluate("document.documentElement.dataset.theme") == theme
        assert owner.page.locator(".fault").count() == 0, (path, owner.page.locator(".fault").first.inner_text())
        assert violations(owner) == [], path


def test_the_overview_shows_the_whole_cluster_and_moves(owner: Visitor) -> None:
    """5,001 nodes on one canvas; the numbers of what runs change without loading the page again."""
    owner.go("/")
    expect(owner.page.get_by_text("Cluster · 5,001 nodes")).to_be_visible()
    expect(owner.page.locator(".map canvas")).to_be_visible()
    assert owner.page.locator("body *").count() < 1_500, "too many elements for a page that stays open"
    before = owner.page.evaluate("performance.getEntriesByType('navigation')[0].startTime")
    pulses = owner.page.evaluate(
        """async () => { const { watch, live } = await import('/static/js/live.js');
        const seen = []; await new Promise((done) => { const leave = watch('pulse', () => { seen.push(live.pulse.at);
        if (seen.length > 2) { leave(); done(); } }); }); return seen; }"""
    )
    assert pulses == sorted(set(pulses))
    assert owner.page.evaluate("performance.getEntriesByType('navigation')[0].startTime") == before


def test_the_list_of_jobs_holds_thousands_but_draws_few(owner: Visitor) -> None:
    """Scrolling brings more; only the rows that are seen are in the page. A row opens its job."""
    owner.go("/jobs?state=all")
    rows = owner.page.locator("tbody tr:not(.space)")
    owner.page.wait_for_selector("tbody tr.link")
    deadline = time.monotonic() + 60
    while owner.page.locator("table").get_attribute("aria-rowcount") in ("1", "201"):
        owner.page.mouse.wheel(0, 20_000)
        owner.page.wait_for_timeout(100)
        assert time.monotonic() < deadline, "scrolling brings no more jobs"
    assert rows.count() < 120
    owner.page.evaluate("window.scrollTo(0, 0)")
    owner.page.locator("tbody tr.link a").first.click()
    expect(owner.page).to_have_url(re.compile(r"/jobs/\d+$"))
    expect(owner.page.locator(".crumbs")).to_contain_text("Jobs /")


def test_filters_are_links(owner: Visitor) -> None:
    """What is typed is in the address; the address shows the same to whoever opens it."""
    owner.go("/jobs?state=all")
    owner.page.fill("label.search input", "render account:physics")
    expect(owner.page).to_have_url(re.compile("q=render"))
    address = owner.page.url
    owner.go(address.removeprefix(owner.origin))
    expect(owner.page.locator("label.search input")).to_have_value("render account:physics")
    owner.page.wait_for_selector("tbody tr.link")
    names = owner.page.locator("td.name").all_inner_texts()
    assert names
    assert all(name.startswith("render-") for name in names)


def test_a_job_that_waits_says_why_and_what_runs_says_where(owner: Visitor, place: Site) -> None:
    """The engine's own answer, in the page."""
    waiting = next(job for job in place.client.jobs(state="pending", limit=1_000) if job.counts.get("pending"))
    owner.go(f"/jobs/{waiting.id}")
    expect(owner.page.locator(".why .big")).to_contain_text(
        place.client.job(waiting.id).why().message.split(";")[0][:12]
    )
    running = next(iter(place.client.jobs(state="running", limit=10)))
    owner.go(f"/jobs/{running.id}")
    expect(owner.page.get_by_text("Where it runs").or_(owner.page.get_by_text("Tasks ·"))).to_be_visible()


def test_the_keyboard_goes_everywhere(owner: Visitor) -> None:
    """g and a letter opens a page, / searches, j and Enter open a row, ? shows the keys."""
    owner.go("/")
    owner.page.keyboard.type("gn")
    expect(owner.page.locator("h1")).to_have_text("Nodes")
    owner.page.keyboard.type("gj")
    owner.page.wait_for_selector("tbody tr.link")
    owner.page.keyboard.type("jj")
    expect(owner.page.locator("tr.cursor")).to_have_count(1)
    owner.page.keyboard.press("Enter")
    expect(owner.page).to_have_url(re.compile(r"/jobs/\d+$"))
    owner.page.keyboard.type("/")
    owner.page.keyboard.type("1234")
    owner.page.keyboard.press("Enter")
    expect(owner.page).to_have_url(re.compile(r"/jobs/1234$"))
    owner.page.keyboard.type("?")
    expect(owner.page.get_by_role("dialog")).to_contain_text("Keyboard")


def test_a_phone_shows_all_pages_without_scrolling_sideways(owner: Visitor) -> None:
    """390 pixels wide."""
    owner.page.set_viewport_size({"width": 390, "height": 844})
    for path in PAGES:
        owner.go(path)
        assert owner.page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_an_array_of_100_000_tasks_is_one_canvas(owner: Visitor, place: Site) -> None:
    """Not 100,000 elements; a click lists the tasks of a cell, from where each is opened; the list goes on by range."""
    job = place.client.submit({"command": ["x"], "array": 100_000, "request": {"cpu": 64}, "hold": True})
    owner.go(f"/jobs/{job.id}/tasks")
    canvas = owner.page.locator(".grid-of-tasks canvas")
    expect(canvas).to_be_visible()
    assert owner.page.locator("body *").count() < 3_000
    canvas.click(position={"x": 5, "y": 1})
    expect(owner.page).to_have_url(re.compile(r"range=5-9$"))
    rows = owner.page.locator("table[aria-label=Tasks] tbody tr.link")
    expect(rows).to_have_count(5)
    owner.page.get_by_role("button", name="Next").click()
    expect(owner.page).to_have_url(re.compile(r"range=10-14$"))
    expect(rows.first).to_contain_text("10")
    rows.first.locator("a").click()
    expect(owner.page).to_have_url(re.compile(rf"/jobs/{job.id}/tasks/10$"))
    job.cancel()


def test_hold_and_release_ask_first(owner: Visitor, place: Site) -> None:
    """Back changes nothing; Hold holds; the page shows it."""
    job = place.client.submit({"command": ["x"], "request": {"cpu": 64}, "nodes": 64, "priority": -1000})
    owner.go(f"/jobs/{job.id}")
    owner.page.get_by_role("button", name="Hold").click()
    owner.page.get_by_role("button", name="Back").click()
    assert not job.refresh().held
    owner.page.get_by_role("button", name="Hold").click()
    owner.page.get_by_role("dialog").get_by_role("button", name="Hold").click()
    expect(owner.page.locator(".head .state")).to_have_text("held")
    owner.page.get_by_role("button", name="Release").click()
    owner.page.get_by_role("dialog").get_by_role("button", name="Release").click()
    expect(owner.page.locator(".head .state")).not_to_have_text("held")
    job.cancel()


def test_a_node_is_cordoned_and_opened_from_its_page(owner: Visitor) -> None:
    """With the reason that was typed."""
    owner.go("/nodes/n0002")
    owner.page.get_by_role("button", name="Cordon").click()
    owner.page.get_by_label("Reason").fill("new <b>disk</b>")
    owner.page.get_by_role("dialog").get_by_role("button", name="Cordon").click()
    expect(owner.page.locator(".attend")).to_contain_text("new <b>disk</b>")
    owner.page.get_by_role("button", name="Open").click()
    owner.page.get_by_role("dialog").get_by_role("button", name="Open").click()
    expect(owner.page.locator(".head .state")).to_have_text("up")


def test_what_others_have_named_is_text(owner: Visitor, place: Site) -> None:
    """A program, a label and a reason that are HTML: shown as they are, run by nothing."""
    job = place.client.submit({"command": [HOSTILE], "request": {"cpu": 1}, "hold": True})
    for path in (
        f"/jobs/{job.id}",
        f"/jobs/{job.id}/spec",
        "/jobs?state=held",
        "/jobs?q=" + HOSTILE.replace("/", "%2F"),
    ):
        owner.go(path)
        owner.page.wait_for_selector("main")
        assert owner.page.locator("main img[src=x]").count() == 0, path
    owner.go(f"/jobs/{job.id}")
    expect(owner.page.locator("h1")).to_contain_text("onerror=alert(1)")
    owner.go(f"/nodes/{HOSTILE.replace('/', '%2F')}")
    expect(owner.page.locator("main")).to_contain_text("There is no such node")
    job.cancel()


def test_a_user_sees_their_own_and_is_offered_what_they_may(place: Site, browser: Browser) -> None:
    """Nobody else's jobs, and no button to close a node."""
    made = place.client.call(access_calls.create_token({"user": "visitor"}))
    visitor = Visitor(browser, place.origin)
    visitor.sign_in_by(made.secret)
    visitor.go("/jobs?state=all")
    expect(visitor.page.locator(".empty")).to_contain_text("No such jobs")
    visitor.go("/nodes/n0003")
    assert visitor.page.get_by_role("button", name="Cordon").count() == 0
    visitor.page.goto(f"{visitor.origin}/jobs/1")
    expect(visitor.page.locator("main")).to_contain_text("There is no such job")
    visitor.page.get_by_title("Sign out").click()
    expect(visitor.page.locator("h1")).to_have_text("Sign in to HAL")
    visitor.context.close()
    assert (visitor.elsewhere, visitor.errors) == ([], [])
