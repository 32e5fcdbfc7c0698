"""Chromium, as Debian has it, before a HAL of thousands of simulated nodes: for tests and figures of the page."""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

import hal
from hal.cli.local.web import sign_in_link
from hal.runtime.home import Home
from tests.web.simulated_cluster import CONFIG, SimulatedCluster, work

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
CHROMIUM: Final = shutil.which("chromium") or "/usr/bin/chromium"
LIMIT_MS: Final = 60_000
EXPECT_MS: Final = 30_000
DESCRIPTORS: Final = 20_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser."""
    expect.set_options(timeout=EXPECT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One browser profile at one page: what it asked for, and what went wrong in it."""

    def __init__(self, browser: Browser, origin: str, **context: Any) -> None:
        self.origin = origin
        self.context: BrowserContext = browser.new_context(viewport={"width": 1440, "height": 900}, **context)
        self.context.set_default_timeout(LIMIT_MS)
        self.page: Page = self.context.new_page()
        self.elsewhere: list[str] = []
        """Requests to any other place."""
        self.errors: list[str] = []
        self.page.on("request", self._asked)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"a dialog: {dialog.message}"))

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.elsewhere.append(request.url)

    def go(self, path: str) -> None:
        """Open a path of the page, and wait until it is drawn."""
        self.page.goto(self.origin + path)
        self.page.wait_for_selector("main h1")
        self.page.wait_for_selector(".loading", state="detached")

    def sign_in(self, link: str) -> None:
        """By a link of the owner."""
        self.page.goto(link)
        self.page.wait_for_selector("nav.nav")

    def sign_in_by(self, token: str) -> None:
        """By a token, typed."""
        self.page.goto(self.origin)
        self.page.fill("input[name=token]", token)
        self.page.click("button.primary")
        self.page.wait_for_selector("nav.nav")


class Site:
    """A HAL with its page, and simulated nodes."""

    def __init__(self, home: Path, client: hal.Client) -> None:
        self.home = home
        self.client = client

    def link(self) -> str:
        """A fresh sign-in link."""
        link = sign_in_link(Home(self.home))
        assert link, "the page is not served"
        return link

    @property
    def origin(self) -> str:
        """Where the page is."""
        return self.link().split("/sign-in")[0]


def command(home: Path, *words: str) -> None:
    """Run `hal` on that home."""
    words = (sys.executable, "-m", "hal.cli.main", "--home", str(home), *words)
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr


@contextmanager
def site(
    home: Path,
    *,
    nodes: int,
    jobs: int,
    port: int,
    config: str = "",
    collector: bool = False,
    measured: bool = False,
    lasts_s: tuple[float, float] = (60.0, 900.0),
    away: int = 0,
) -> Iterator[Site]:
    """A running HAL of so many nodes that runs and queues so many jobs, with its page.

    Args:
        collector: with one.
        measured: the nodes send samples to it.
        lasts_s: the shortest and the longest that a step takes.
        away: so many nodes hang up at once.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    home.mkdir(parents=True, exist_ok=True)
    (home / "hal.toml").write_text(f'{CONFIG}\n{config}\n[web]\nlisten = "127.0.0.1:{port}"\n')
    command(home, "up", "--with", "web,observability" if collector else "web")
    try:
        with hal.connect(home=home) as client, simulated(home, nodes, client, lasts_s, away, measured=measured):
            specs = work(jobs)
            for at in range(0, len(specs), 1_000):
                client.submit(specs[at : at + 1_000])
            yield Site(home, client)
    finally:
        command(home, "down", "--kill")


@contextmanager
def simulated(
    home: Path, nodes: int, client: hal.Client, lasts_s: tuple[float, float], away: int, *, measured: bool
) -> Iterator[None]:
    """The nodes, in a thread of their own."""
    ready, over, failed = threading.Event(), threading.Event(), list[BaseException]()

    async def live() -> None:
        cluster = SimulatedCluster(Home(home), nodes, lasts_s=lasts_s)
        cluster.measured, cluster.away = measured, away
        await cluster.start(client)
        ready.set()
        await asyncio.to_thread(over.wait)
        await cluster.stop()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait()
        assert not failed, failed[0]
        yield
    finally:
        over.set()
        thread.join()


def free_port() -> int:
    """A port of this machine that nobody serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def need_chromium() -> None:
    """Skip a test where there is none."""
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
