"""A controller as a process of its own, with a HAL_HOME of its own, on a database that several share."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from hal.runtime.home import Home

LIMIT_S = 60.0


class ControllerProcess:
    """Started by `start`; ended, and its home removed, by `remove`."""

    def __init__(self, root: Path, name: str, store_url: str, settings: str = "") -> None:
        """`settings`: more of its hal.toml."""
        self.home = Home(Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root)))
        self.home.create()
        self.home.config.write_text(f'[store]\nurl = "{store_url}"\n{settings}')
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it answers some time later."""
        environment = {**os.environ, "HAL_HOME": str(self.home.root)}
        command = [sys.executable, "-m", "hal.daemons.controller", "--home", str(self.home.root)]
        with (self.home.root / "output").open("ab") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """It is gone when this returns."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by that signal; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        return self._process.wait(LIMIT_S)

    def remove(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        directory = self.home.known_socket_dir()
        for place in (directory, self.home.root):
            if place is not None:
                shutil.rmtree(place, ignore_errors=True)

    def log(self) -> str:
        """For the message of a test that fails."""
        file = self.home.log_file("controller")
        return file.read_text()[-4_000:] if file.exists() else (self.home.root / "output").read_text()

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request; a connection that does not come about raises httpx.TransportError."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.home.api_socket()), verify=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://hal", timeout=LIMIT_S) as http:
            return await http.request(method, path, **request)

    def out(self) -> str:
        """What it wrote itself: the error of a start that failed."""
        return (self.home.root / "output").read_text()

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(LIMIT_S)

    async def until(self, path: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask again and again until the answer is as wanted."""
        last: Any = None
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    try:
                        answer = await self.ask("GET", path)
                        last = answer.json()
                        if answer.status_code == 200 and holds(last):
                            found: dict[str, Any] = last
                            return found
                    except httpx.TransportError as error:
                        last = error
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{path} never was as wanted; last: {last}\n{self.log()}") from None

    async def leads(self) -> dict[str, Any]:
        """Its health once it leads."""
        return await self.until("/v1/health", lambda health: health["status"] == "ok")

    async def follows(self) -> dict[str, Any]:
        """Its health once it follows a leader."""
        return await self.until("/v1/health", lambda health: health["status"] == "following" and health["leader"] != "")
