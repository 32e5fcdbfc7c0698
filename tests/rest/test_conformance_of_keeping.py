"""The contract of a daemon's own REST, which speaks REST only, on the controller and on the shelf of examples/shelf."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hal.conformance import NonConformance
from hal.conformance.plane import keep
from hal.conformance.plane.rest import Exchange, Rest
from hal.daemons.controller.config import read_config
from hal.rest.server.http_server import Ports
from tests.daemons.controller.access.people import make_token
from tests.daemons.controller.running import running
from tests.rest.serving import shelf_beside


class Tampering(Rest):
    """A daemon whose answers are changed on their way."""

    def __init__(self, url: str, token: str, change: Callable[[str, Exchange], Exchange]) -> None:
        super().__init__(url, token)
        self._change = change

    def exchange(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Exchange:
        """As changed."""
        return self._change(path, super().exchange(method, path, headers, body))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def on_both(root: Path, test: Callable[[Rest, Rest], None]) -> None:
    """Run it with the controller's REST and the shelf's, over TCP with an operator's token."""

    async def body() -> None:
        ours, theirs = free_port(), free_port()
        async with AsyncExitStack() as stack:
            hal = await stack.enter_async_context(running(root, read_config(f'[server]\ntcp = "{ours}"')))
            await stack.enter_async_context(shelf_beside(hal, ports=Ports(tcp=("127.0.0.1", theirs))))
            token = (await make_token(hal, "ada", role="operator", queues=["short"]))["secret"]
            await asyncio.to_thread(
                test, Rest(f"http://127.0.0.1:{ours}", token), Rest(f"http://127.0.0.1:{theirs}", token)
            )

    asyncio.run(body())


def test_both_keep_the_contract_and_agree_on_their_callers(hal_home: Path) -> None:
    """The controller, and a daemon that asks it."""

    def compared(controller: Rest, shelf: Rest) -> None:
        keep.check(controller)
        keep.check(shelf, controller)

    on_both(hal_home, compared)


def test_the_command_line_says_whether_a_daemon_conforms(hal_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over its socket, where the kernel names the caller."""

    async def body() -> None:
        async with running(hal_home) as hal, shelf_beside(hal) as shelf:
            url = f"unix://{hal.runtime.paths.api_socket()}"
            assert await asyncio.to_thread(keep.main, [f"unix://{shelf.socket}", "--controller", url]) == 0

    asyncio.run(body())
    assert "conforms: 6 guarantees" in capsys.readouterr().out


def without_version(path: str, answer: Exchange) -> Exchange:
    return answer._replace(headers={name: text for name, text in answer.headers.items() if name != keep.VERSION})


def without_hints(path: str, answer: Exchange) -> Exchange:
    if answer.status < 400:
        return answer
    problem = {name: text for name, text in json.loads(answer.body).items() if name != "hint"}
    return answer._replace(body=json.dumps(problem).encode())


def open_to_all(path: str, answer: Exchange) -> Exchange:
    return answer._replace(status=200) if answer.status == 401 else answer


def everybody_is_bob(path: str, answer: Exchange) -> Exchange:
    if path != keep.WHO or answer.status != 200:
        return answer
    return answer._replace(body=json.dumps({**json.loads(answer.body), "user": "bob"}).encode())


def test_a_daemon_that_breaks_a_guarantee_is_found(hal_home: Path) -> None:
    """One that names no version, hints at nothing, lets strangers in, or takes callers for somebody else."""

    def broken(controller: Rest, shelf: Rest) -> None:
        for change in (without_version, without_hints, open_to_all, everybody_is_bob):
            with pytest.raises(NonConformance, match="keep: "):
                keep.check(Tampering(shelf._url.geturl(), shelf._token, change), controller)

    on_both(hal_home, broken)
