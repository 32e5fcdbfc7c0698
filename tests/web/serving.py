"""The page's application in this process, beside a real controller, for tests without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from hal.client.addresses.address import Address
from hal.core.model.web_config import WebSection
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.web.server import Page
from tests.daemons.controller.access.people import PEER, make_token
from tests.daemons.controller.running import LIMIT_S, Running, running

ORIGIN: Final = "http://127.0.0.1:4280"


class Browser:
    """What a browser sends: its cookies, and what the page adds to requests that change something."""

    def __init__(self, page: Page) -> None:
        transport = httpx.ASGITransport(app=page.front, client=PEER)  # type: ignore[arg-type]
        self.http = httpx.AsyncClient(transport=transport, base_url=ORIGIN, timeout=LIMIT_S)
        self.csrf = ""

    async def sign_in(self, **body: str) -> httpx.Response:
        """With a token, or the key of a link."""
        answer = await self.http.post("/api/sign-in", json=body)
        if answer.status_code == 201:
            self.csrf = answer.json()["csrf"]
        return answer

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Read at the controller."""
        return await self.http.get(f"/api/controller/v1/{path}", headers=headers)

    async def change(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Change something at the controller, as the page does."""
        headers = {"x-hal-csrf": self.csrf, "origin": ORIGIN, "sec-fetch-site": "same-origin"}
        return await self.http.post(f"/api/controller/v1/{path}", json=body, headers=headers)


class Web:
    """What a test uses."""

    def __init__(self, hal: Running, page: Page) -> None:
        self.hal = hal
        self.page = page
        self._browsers: list[Browser] = []

    def browser(self) -> Browser:
        """One where nobody is signed in."""
        self._browsers.append(Browser(self.page))
        return self._browsers[-1]

    async def person(self, user: str, **token: Any) -> Browser:
        """One where a user is signed in with a fresh token."""
        browser = self.browser()
        secret = (await make_token(self.hal, user, **token))["secret"]
        assert (await browser.sign_in(token=secret)).status_code == 201
        return browser

    async def aclose(self) -> None:
        for browser in self._browsers:
            await browser.http.aclose()
        await self.page.web.sessions.aclose()


@asynccontextmanager
async def web_beside(hal: Running, **section: Any) -> AsyncIterator[Web]:
    """The page of a running controller."""
    home = hal.runtime.paths
    file = LogFile(home.log_file("web"))
    runtime = RealRuntime("web", home, open_log(file, "web"), seed=3)
    page = Page(runtime, WebSection(**section), ("127.0.0.1", 4280), Address(home=home), secure=False)
    web = Web(hal, page)
    try:
        yield web
    finally:
        await web.aclose()
        page.audit.close()
        await runtime.close()
        file.close()


def on_web(root: Path, test: Callable[[Web], Awaitable[None]]) -> None:
    """Run a test's body against a controller and a page of its own."""

    async def body() -> None:
        async with running(root) as hal, web_beside(hal) as web:
            await test(web)

    asyncio.run(body())
