"""The contract of following and asking, which speaks REST only, on a real controller."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.conformance import NonConformance
from hal.conformance.plane import ask, follow
from hal.conformance.plane.rest import Rest
from hal.daemons.controller.config import read_config
from tests.daemons.controller.access.people import make_token
from tests.daemons.controller.running import Running, on_controller

WORK = follow.Work(succeeds=("exit", "0"), fails=("exit", "1"))


def test_the_controller_keeps_the_contract_of_following_and_asking(hal_home: Path) -> None:
    """As a plane sees it, over TCP with an operator's token; and as a user who is no operator."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{free.getsockname()[1]}"

    async def body(hal: Running) -> None:
        await hal.agent()
        tokens = [
            (await make_token(hal, name, role=role))["secret"] for name, role in (("p", "operator"), ("u", "user"))
        ]
        operator, user = (Rest(f"http://{url}", token) for token in tokens)
        await asyncio.to_thread(follow.check, operator, user, work=WORK)
        await asyncio.to_thread(ask.check, operator, user)

    on_controller(hal_home, body, read_config(f'[server]\ntcp = "{url}"'))


def test_the_command_line_says_whether_a_controller_conforms(hal_home: Path) -> None:
    """Over the socket."""

    async def body(hal: Running) -> None:
        await hal.agent()
        assert await asyncio.to_thread(ask.main, [f"unix://{hal.runtime.paths.api_socket()}"]) == 0

    on_controller(hal_home, body)


class Tampering(Rest):
    """A controller whose answers are changed on their way."""

    def __init__(self, url: str, change: Callable[[str, Any], Any]) -> None:
        super().__init__(url)
        self._change = change

    def good(self, method: str, path: str, body: object = None) -> Any:
        """As changed."""
        return self._change(path, super().good(method, path, body))


def test_an_answer_that_breaks_a_guarantee_is_found(hal_home: Path) -> None:
    """A row left out, a row twice, a position that goes back, tasks that are not counted."""

    def without_first(path: str, answer: Any) -> Any:
        behind = path.startswith("/v1/attempts?ended_after")
        return {**answer, "attempts": answer["attempts"][1:]} if behind else answer

    def twice(path: str, answer: Any) -> Any:
        behind = path.startswith("/v1/attempts?ended_after")
        return {**answer, "attempts": answer["attempts"] * 2} if behind else answer

    def always_zero(path: str, answer: Any) -> Any:
        return {**answer, "attempts": {"read": 0, "behind": 0}} if path == follow.PATH else answer

    def of_one_task(path: str, answer: Any) -> Any:
        return {**answer, "classes": [{**one, "tasks": 1} for one in answer["classes"]]} if "wants" in path else answer

    async def body(hal: Running) -> None:
        await hal.agent()
        url = f"unix://{hal.runtime.paths.api_socket()}"
        for change, guarantee in (
            (without_first, lambda rest: follow.each_end_comes_once_and_in_order(rest, WORK)),
            (twice, lambda rest: follow.each_end_comes_once_and_in_order(rest, WORK)),
            (always_zero, lambda rest: follow.a_position_never_goes_back(rest, WORK)),
            (of_one_task, lambda rest: ask._with_offer(rest, ask.waiting_work_is_counted_by_class)),
        ):
            with pytest.raises(NonConformance, match=r"follow|ask"):
                await asyncio.to_thread(guarantee, Tampering(url, change))

    on_controller(hal_home, body)
