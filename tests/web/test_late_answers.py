"""Answers that come to the page after the session that asked for them is over, in Chromium."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Request, Route

import hal.web
from tests.web.browser import chromium, need_chromium

pytestmark = pytest.mark.slow

STATIC: Final = Path(hal.web.__file__).parent / "static"
ORIGIN: Final = "http://page.test"
JOBS: Final = "/api/controller/v1/jobs"
DEADLINE_S: Final = 30.0


class Server:
    """Stands for the network between the page's script and its server: it holds what asks for jobs until it is told."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.held: list[Route] = []
        self.users = iter(("alice", "bob"))
        page.route("**/*", self._answer)
        page.goto(f"{ORIGIN}/")
        page.evaluate("async () => { window.api = await import('/static/js/api.js'); }")

    def _answer(self, route: Route, request: Request) -> None:
        path = urlsplit(request.url).path
        if path == JOBS:
            self.held.append(route)
        elif path == "/api/sign-in":
            user = next(self.users)
            route.fulfill(json={"user": user, "csrf": f"key-of-{user}"})
        elif path == "/api/sign-out":
            route.fulfill(json={})
        elif path.startswith("/static/"):
            route.fulfill(path=STATIC / path.removeprefix("/static/"), content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html>", content_type="text/html")

    def run(self, script: str) -> Any:
        return self.page.evaluate(f"async () => {{ {script} }}")

    def ask(self) -> Route:
        """Have the page ask for jobs; the answer will be in `window.answer`."""
        self.run(f"window.answer = api.get('{JOBS}').then((found) => found, (error) => ({{error: error.status}}))")
        return self.asked()

    def asked(self) -> Route:
        """The next question about jobs, held."""
        end_s = time.monotonic() + DEADLINE_S
        while not self.held:
            assert time.monotonic() < end_s, "the page does not ask"
            self.run("")  # lets routes arrive
        return self.held.pop()

    def answer(self, route: Route, of: str) -> None:
        route.fulfill(body=json.dumps({"of": of}), headers={"etag": f'"{of}"', "content-type": "application/json"})


@pytest.fixture
def server() -> Iterator[Server]:
    need_chromium()
    with chromium() as browser:
        yield Server(browser.new_page())


def test_safety_a_late_answer_is_neither_shown_nor_kept_for_the_next_user(server: Server) -> None:
    """Alice signs out while her jobs are on their way, and Bob signs in: the page asks again, as Bob, and without the
    mark of Alice's answer."""
    server.run("await api.signIn({})")
    late = server.ask()
    server.run("await api.signOut(); await api.signIn({})")
    server.answer(late, "alice")
    again = server.asked()
    assert "if-none-match" not in again.request.headers
    server.answer(again, "bob")
    assert server.run("return await window.answer") == {"of": "bob"}


def test_a_late_refusal_does_not_end_the_next_session(server: Server) -> None:
    server.run("await api.signIn({})")
    late = server.ask()
    server.run("await api.signOut(); await api.signIn({})")
    late.fulfill(status=401, json={})
    server.answer(server.asked(), "bob")
    assert server.run("return await window.answer") == {"of": "bob"}
    assert server.run("return api.getSession().user") == "bob"


def test_after_the_sign_out_a_late_answer_is_nobodys(server: Server) -> None:
    """Nobody is signed in: what the page then asks for is refused, and that is what its view gets."""
    server.run("await api.signIn({})")
    late = server.ask()
    server.run("await api.signOut()")
    server.answer(late, "alice")
    server.asked().fulfill(status=401, json={})
    assert server.run("return await window.answer") == {"error": 401}
