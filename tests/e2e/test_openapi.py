"""The OpenAPI document against a controller process: whatever is sent, answers are as it says, and none is 5xx."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from hal.daemons.controller.api.table import document
from hal.runtime.home import Home
from tests.e2e.conftest import DEADLINE_S, new_home, until

WAITS = {"timeout_s": 0, "wait_s": 0, "follow": "0"}
"""Parameters that make an answer take its time."""
EXAMPLES = 10
SOAK_EXAMPLES = 1_000
MAX_MORE_DESCRIPTORS = 20


@pytest.fixture(scope="module")
def controller() -> Iterator[tuple[Home, int]]:
    """A controller without any node, so that no job that is made up here ever runs; its home and process id."""
    home = Home(new_home())
    home.create()
    with (
        subprocess.Popen(
            [sys.executable, "-m", "hal.daemons.controller", "--home", str(home.root)],
            env={**os.environ, "HAL_HOME": str(home.root)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            until(lambda: home.known_socket_dir() is not None and home.api_socket().exists(), "the controller listens")
            yield home, process.pid
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def check(controller: tuple[Home, int], examples: int) -> None:
    """Requests of every operation, those that the document allows and those that it forbids."""
    import schemathesis  # takes seconds, which `make test` would wait for, too
    from schemathesis.checks import load_all_checks
    from schemathesis.generation import GenerationMode

    home, pid = controller
    load_all_checks()
    schema = schemathesis.openapi.from_dict(document())
    transport = httpx.HTTPTransport(uds=str(home.api_socket()))
    with httpx.Client(transport=transport, base_url="http://hal", timeout=DEADLINE_S) as http:
        http.get("/v1/health")
        before = descriptors(pid)
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                one(http, operation, mode, examples)
        health = http.get("/v1/health").json()
        assert (health["status"], health["pid"]) == ("ok", pid)
        assert descriptors(pid) <= before + MAX_MORE_DESCRIPTORS


def one(http: httpx.Client, operation: Any, mode: Any, examples: int) -> None:
    """One operation, in one mode; an operation without anything to get wrong has no negative mode."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        if isinstance(case.query, dict):
            case.query.update({name: value for name, value in WAITS.items() if name in case.query})
        sent = case.as_transport_kwargs(base_url="http://hal")
        headers: dict[str, str] = {**(sent.get("headers") or {}), "Connection": "keep-alive"}
        if any(value != value.strip() for value in headers.values()):
            return  # HTTP takes blanks around a value away: another value arrives
        body = {"content": sent["data"]} if isinstance(sent.get("data"), bytes | str) else {"data": sent.get("data")}
        try:
            request = http.build_request(
                sent["method"],
                sent["url"],
                params=sent.get("params"),
                headers=headers,
                json=sent.get("json"),
                **({} if sent.get("data") is None else body),
            )
        except (httpx.InvalidURL, ValueError, UnicodeError, TypeError):
            return  # what httpx cannot send is not sent
        try:
            answer = http.send(request)
        except httpx.LocalProtocolError:
            return
        # A rule that JSON Schema cannot say (an unknown queue, a limit without any bound) is refused with 400.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    try:
        send()
    except Unsatisfiable:
        return


@pytest.mark.slow
@pytest.mark.long
def test_safety_every_answer_is_as_the_document_says(controller: tuple[Home, int]) -> None:
    """Ten requests of each kind for each operation: no 5xx, every status, header and body as described."""
    check(controller, EXAMPLES)


@pytest.mark.soak
def test_safety_answers_are_as_the_document_says_for_long(controller: tuple[Home, int]) -> None:
    """The same with a thousand."""
    check(controller, SOAK_EXAMPLES)
