"""What the page shows of a collector, in Chromium: alerts and silences, usage, measured nodes, traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Download, expect

from hal.client.rest import access_calls
from tests.web.browser import Site, Visitor, chromium, free_port, need_chromium
from tests.web.graphs import pipeline
from tests.web.observed import SIMULATED, observed_site, wait_until

pytestmark = pytest.mark.slow

NODES: Final = 200
JOBS: Final = 400
HOSTILE: Final = "<img/src=x/onerror=alert(1)>"
PAGES: Final = ("/", "/alerts", "/usage", "/usage?span=1d&by=user&of=attempts", "/nodes", "/nodes/gpu0120", "/logs")
SERIOUS: Final = ("serious", "critical")


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    """One site for all tests here, where attempts have ended and an alert fires."""
    need_chromium()
    with observed_site(nodes=NODES, jobs=JOBS, port=free_port()) as made:
        wait_until(lambda: len(list(made.client.jobs(state="ended", limit=10))) >= 10, "nothing ended")
        yield made


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


@pytest.fixture
def viewer(place: Site, browser: Browser) -> Iterator[Visitor]:
    """Maria, by her token."""
    made = place.client.call(access_calls.create_token({"user": "maria"}))
    visitor = Visitor(browser, place.origin)
    visitor.sign_in_by(made.secret)
    yield visitor
    visitor.context.close()
    assert (visitor.elsewhere, visitor.errors) == ([], [])


def violations(visitor: Visitor) -> list[Any]:
    """What axe finds that is serious."""
    found = Axe().run(visitor.page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in SERIOUS]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_of_the_collector_are_accessible_in_both_themes(owner: Visitor, theme: str) -> None:
    """Each has its heading and no fault, and axe finds nothing serious."""
    owner.page.evaluate("theme => localStorage.setItem('hal-theme', theme)", theme)
    for path in PAGES:
        owner.go(path)
        assert owner.page.locator(".fault").count() == 0, (path, owner.page.locator(".fault").first.inner_text())
        assert violations(owner) == [], path


def test_a_phone_shows_them_without_scrolling_sideways(owner: Visitor) -> None:
    """390 pixels wide."""
    owner.page.set_viewport_size({"width": 390, "height": 844})
    for path in PAGES:
        owner.go(path)
        assert owner.page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_an_alert_is_silenced_and_told_again(owner: Visitor) -> None:
    """It says what to do; its badge goes while it is silenced, and comes back when the silence is ended."""
    owner.go("/alerts")
    fires = owner.page.locator(".alert", has_text="Nodes that are").first
    expect(fires).to_contain_text("hal node fence")
    badge = owner.page.locator('nav a[href="/alerts"] .n.bad')
    expect(badge).to_have_text(re.compile(r"\d"))
    fires.get_by_role("button", name="Silence").click()
    dialog = owner.page.get_by_role("dialog")
    dialog.get_by_label("For").select_option("1h")
    dialog.get_by_label("Why").fill(HOSTILE)
    dialog.get_by_role("button", name="Silence").click()
    expect(fires).to_contain_text("silenced by root until")
    expect(fires).to_contain_text(HOSTILE)
    expect(badge).to_have_count(0)
    owner.page.get_by_role("button", name="End").first.click()
    owner.page.get_by_role("dialog").get_by_role("button", name="End it").click()
    expect(fires).not_to_contain_text("silenced by")
    expect(badge).to_have_text(re.compile(r"\d"))


def test_a_viewer_sees_alerts_but_silences_none(viewer: Visitor) -> None:
    """No button; and the server refuses what a button would send."""
    viewer.go("/alerts")
    expect(viewer.page.locator(".alert").first).to_be_visible()
    assert viewer.page.get_by_role("button", name="Silence").count() == 0
    assert viewer.page.get_by_role("button", name="New silence").count() == 0
    refused = viewer.page.evaluate(
        """async () => { const { change, collector } = await import('/static/js/api.js');
        try { await change(collector('silences'), { matchers: ['rule=NodesDown'], duration: '1h' }); return 'taken'; }
        catch (error) { return error.status; } }"""
    )
    assert refused == 403


def test_usage_is_summed_drawn_and_saved(owner: Visitor, tmp_path: Path) -> None:
    """By user over a day: a row each, their sums as columns over time, cost by the prices; all fields as CSV."""
    owner.go("/usage?by=user&span=1d")
    rows = owner.page.locator("table tbody tr")
    expect(rows).to_have_count(5)
    expect(owner.page.locator(".tiles")).to_contain_text("EUR")
    expect(owner.page.locator(".columns .cat-0").first).to_be_visible()
    with owner.page.expect_download() as saving:
        owner.page.get_by_role("button", name="CSV").click()
    saved: Download = saving.value
    saved.save_as(tmp_path / "usage.csv")
    head, *lines = (tmp_path / "usage.csv").read_text().splitlines()
    assert head.startswith("user,since_ms,until_ms,attempts,")
    assert head.endswith(",out-of-memory,currency")
    assert {line.split(",")[0] for line in lines} == {"maria", "jonas", "amira", "wei", "olu"}
    assert all(line.endswith(",EUR") for line in lines)


def test_a_viewer_sees_their_own_usage(viewer: Visitor) -> None:
    """One row: hers."""
    viewer.go("/usage?by=user&span=1d")
    expect(viewer.page.locator("table tbody tr")).to_have_count(1)
    expect(viewer.page.locator("table tbody")).to_contain_text("maria")
    expect(viewer.page.locator(".head")).to_contain_text("what is yours")


def test_a_cell_that_a_spreadsheet_would_take_for_a_formula_is_text(owner: Visitor) -> None:
    """As `hal usage --csv` does."""
    owner.go("/usage")
    text = owner.page.evaluate(
        """async () => (await import('/static/js/csv.js')).csvOf([{ key: '=cmd|x', states: {}, waits: {} },
        { key: 'a,"b"', states: { succeeded: 2 }, waits: {} }], 'user', '')"""
    )
    head, formula, quoted = text.splitlines()
    assert head.startswith("user,succeeded,")
    assert formula.startswith("'=cmd|x,0,")
    assert quoted.startswith('"a,""b""",2,')


def ended_job(place: Site, user: str = "") -> str:
    """The id of a job of one task that has run and ended."""
    wanted = {"user": user} if user else {}
    found = list(place.client.jobs(state="succeeded,failed", limit=200, **wanted))
    return next(job.id for job in found if job.tasks == 1)


def test_a_trace_shows_where_the_time_went(owner: Visitor, place: Site) -> None:
    """The job, its attempt and the phases of it, each with its time; a click shows what is known of a span."""
    owner.go(f"/jobs/{ended_job(place)}/trace")
    spans = owner.page.locator(".waterfall .span")
    expect(spans.locator(".name")).to_contain_text(["job ", re.compile(r"\d+\.0\.1"), "waiting", "starting", "running"])
    assert all(re.match(r"[\d.]+(ms|s|m)", text) for text in spans.locator(".took").all_inner_texts())
    spans.last.locator(".name").click()
    expect(spans.last).to_contain_text("hal.cpu_ms")
    owner.page.get_by_role("button", name="Show only its time").click()
    expect(owner.page.get_by_role("button", name="All of the time", exact=True)).to_be_visible()
    assert violations(owner) == []
    owner.page.set_viewport_size({"width": 390, "height": 844})
    assert owner.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_viewer_sees_no_trace_of_others(viewer: Visitor, place: Site) -> None:
    """Her own she sees; for another's, page and collector say that there is none."""
    hers, his = ended_job(place, "maria"), ended_job(place, "wei")
    viewer.go(f"/jobs/{hers}/trace")
    expect(viewer.page.locator(".waterfall .span").first).to_be_visible()
    viewer.page.goto(f"{viewer.origin}/jobs/{his}/trace")
    expect(viewer.page.locator("main")).to_contain_text("There is no such job")
    status = "async path => (await fetch(path)).status"
    assert viewer.page.evaluate(status, f"/api/collector/v1/traces/{his}") == 404


def test_a_graph_of_few_jobs_shows_each(owner: Visitor, place: Site) -> None:
    """A pipeline of 3 times 10 jobs and three more: each a box that leads to its graph; hostile names are text."""
    jobs = place.client.submit([*pipeline(3), {"command": [HOSTILE], "dependencies": ["afterok:report"]}])
    owner.go(f"/jobs/{jobs[0].id}/graph")
    expect(owner.page.locator("a.node")).to_have_count(34)
    expect(owner.page.locator(".dag")).to_contain_text("onerror=alert(1)>")
    assert owner.page.locator("main img[src=x]").count() == 0
    assert violations(owner) == []
    owner.page.locator("a.node", has_text="merge").click()
    expect(owner.page.locator("h1")).to_have_text("merge")
    place.client.cancel(jobs[0].id)


def test_a_graph_of_100_000_jobs_is_layers_that_open(owner: Visitor, place: Site) -> None:
    """99,993 jobs: a box for each step; one opens to the list of its jobs; a search says where what it finds is."""
    jobs = place.client.submit(pipeline(9_999))
    first = jobs[0].id
    owner.go(f"/jobs/{first}/graph")
    boxes = owner.page.locator(".dag .many")
    expect(boxes).to_have_count(10)
    expect(boxes.first).to_contain_text("9,999 × split-#")
    assert owner.page.locator("body *").count() < 1_500
    boxes.first.click()
    rows = owner.page.locator("table tbody tr.link")
    expect(owner.page.locator("table")).to_have_attribute("aria-rowcount", "10000")
    assert rows.count() < 60
    owner.page.get_by_placeholder("Number, name or state").fill("align-1234")
    expect(owner.page).to_have_url(re.compile("find=align-1234"))
    expect(owner.page.locator(".dag .many:not(.dim)")).to_have_count(1)
    expect(owner.page.locator(".dag .many:not(.dim)")).to_contain_text("1 found")
    assert violations(owner) == []
    owner.page.get_by_role("button", name="Nearest").click()
    expect(owner.page.locator(".dag .many")).to_have_count(0)
    owner.page.set_viewport_size({"width": 390, "height": 844})
    assert owner.page.evaluate("document.documentElement.scrollWidth") <= 390
    place.client.cancel(jobs[0].id)


def test_the_map_shows_what_is_used_beside_what_is_held(owner: Visitor) -> None:
    """By the collector's samples: another colour, GPUs that are held and idle, and both in what a node says."""
    owner.go("/nodes?map=g")
    canvas = owner.page.locator(".map canvas")
    held = canvas.evaluate("el => el.toDataURL()")
    owner.page.get_by_role("button", name="Used").click()
    expect(owner.page).to_have_url(re.compile("use=1"))
    expect(owner.page.locator(".legend")).to_contain_text("held, not used")
    expect(owner.page.locator("thead")).to_contain_text("GPU used")
    owner.page.wait_for_function(
        "async () => { const { measured } = await import('/static/js/measured.js'); return measured.g !== null; }"
    )
    owner.page.wait_for_function("held => document.querySelector('.map canvas').toDataURL() !== held", arg=held)
    canvas.focus()
    owner.page.keyboard.press("ArrowRight")
    expect(owner.page.locator(".map .tip")).to_contain_text("used")
    owner.go("/nodes?map=h")
    expect(owner.page.locator(".legend")).to_contain_text("strained")


def test_a_node_shows_what_was_measured_there(owner: Visitor) -> None:
    """Lines of its CPU, memory and GPUs."""
    owner.go("/nodes/gpu0120")
    panel = owner.page.locator("section[aria-label='Measured, last hour']")
    expect(panel).to_contain_text("Cores busy")
    expect(panel).to_contain_text("GPUs used")


def test_output_is_followed_while_a_real_job_writes_it(owner: Visitor, place: Site, tmp_path: Path) -> None:
    """On this machine's own node: a line that is there, one that comes later, and the end, without loading again."""
    (node,) = [one.name for one in place.client.nodes() if not SIMULATED.fullmatch(one.name)]
    place.client.uncordon(node)
    go_on = tmp_path / "go-on"
    script = (
        f"printf 'first <b>line</b>\\n\\033[31mred\\033[0m\\n'; until [ -e {go_on} ]; do sleep 0.1; done; echo second"
    )
    spec = {"command": ["sh", "-c", script], "constraints": [f"hal.node={node}"], "user": "root", "priority": 10_000}
    job = place.client.submit(spec)
    owner.page.goto(f"{owner.origin}/jobs/{job.id}/logs")
    log = owner.page.locator(".log")
    expect(log).to_contain_text("first <b>line</b>\nred\n")
    assert owner.page.locator(".log b").count() == 0
    assert "second" not in log.inner_text()
    expect(owner.page.locator("section[aria-label=Output]")).to_contain_text("live")
    go_on.touch()
    expect(log).to_contain_text("second")
    expect(owner.page.locator(".head .state")).to_have_text("succeeded")
    place.client.cordon(node)


def test_a_job_shows_its_plan_and_what_it_uses_of_its_request(owner: Visitor, place: Site) -> None:
    """What runs: until when it may, and lines of its samples against what it asked for; what waits: its forecast."""
    wait_until(lambda: next(running(place), None), "nothing runs")
    job = next(running(place))
    owner.go(f"/jobs/{job.id}")
    use = owner.page.locator("section[aria-label='Used of what it asked for']")
    expect(use).to_contain_text("Cores used")
    expect(use).to_contain_text("asked for")
    expect(owner.page.locator(".gantt .bar-run, .gantt .bar-ok, .gantt .bar-bad")).not_to_have_count(0)
    huge = place.client.submit({"command": ["x"], "nodes": NODES - 10, "request": {"cpu": 64}, "walltime": "1h"})
    owner.go(f"/jobs/{huge.id}")
    expect(owner.page.locator(".why .big")).to_be_visible()
    expect(owner.page.locator(".gantt .bar-plan")).to_be_visible()
    expect(owner.page.locator("section[aria-label=Timeline]")).to_contain_text(re.compile("forecast|reserved"))
    huge.cancel()


def test_a_session_shows_its_slots_and_its_broker(owner: Visitor, place: Site) -> None:
    """A real one on this machine's own node; it is offered to end it, after a question."""
    (node,) = [one.name for one in place.client.nodes() if not SIMULATED.fullmatch(one.name)]
    place.client.uncordon(node)
    with place.client.session(2, name="sweep", constraints=[f"hal.node={node}"], cpus=0.25) as session:
        assert session.submit(len, "ab").result(timeout=60) == 2
        owner.go("/sessions")
        card = owner.page.locator("section[aria-label=sweep]")
        expect(card).to_contain_text("of 2 slots")
        expect(card).to_contain_text(f"on {node}")
        expect(card.locator(".state")).to_have_text("running")
        assert violations(owner) == []
        card.get_by_role("button", name="End").click()
        expect(owner.page.get_by_role("dialog")).to_contain_text("Cancel 2 jobs?")
        owner.page.get_by_role("button", name="Back").click()
    place.client.cordon(node)


def running(place: Site) -> Iterator[Any]:
    """Jobs of one task on one node that run."""
    return (job for job in place.client.jobs(state="running", limit=200) if job.tasks == job.nodes == 1)
