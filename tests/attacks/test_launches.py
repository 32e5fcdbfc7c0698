"""Launches into allocations on a HAL of root: nobody begins ranks in another user's job; ranks are the job's user."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from hal.client.step_streams import StepStream, open_stream
from hal.client.transport.http import Connections
from hal.core.model import DeniedError, HALError, NotFoundError, SpecError
from hal.wire.step_streams import BEGIN, END, EXIT, FAIL, OUT, VARIABLES, message
from tests.attacks.stream_site import Site
from tests.e2e.conftest import until

SETUP = message(VARIABLES, b"A=1\0") + message(BEGIN)


def launch(site: Site, who: Connections, job: int | None = None, setup: bytes = SETUP, **asked: Any) -> StepStream:
    """Ranks on the second node of alice's allocation, or of another job."""
    body = {"rank": 1, "ranks": 2, "first_rank": 1, "size": 3, "argv": ["id", "-u"], **asked}
    return open_stream(who, job or site.allocation, setup=setup, kind="launch", here=True, **body)


def said(stream: StepStream) -> tuple[str, list[int]]:
    """What all ranks write, and the kinds of messages that end them."""
    text, ends = b"", []
    heard = [(kind, bytes(body)) for kind, body in stream.early]
    sock = socket.socket(fileno=os.dup(stream.link.fileno()))
    sock.settimeout(60)
    while not heard or heard[-1][0] not in (END, FAIL):
        data = sock.recv(1 << 16)
        if not data:
            break
        heard += [(kind, bytes(body)) for kind, body in stream.reader.feed(data)]
    for kind, body in heard:
        text += body if kind == OUT else b""
        ends += [kind] if kind in (EXIT, FAIL) else []
    return text.decode(), ends


def test_ranks_are_the_jobs_user_without_a_right_of_roots(site: Site) -> None:
    """On a node where the job's command does not even run."""
    script = "id -u; grep -E '^(CapEff|CapPrm|CapAmb)' /proc/self/status"
    text, ends = said(launch(site, site.connections(site.alice.name), argv=["sh", "-c", script]))
    assert ends == [EXIT, EXIT]
    assert set(text.split()) == {str(site.alice.uid), "CapEff:", "CapPrm:", "CapAmb:", "0" * 16}


@pytest.mark.parametrize(("who", "error"), [("user", NotFoundError), ("operator", DeniedError)])
def test_nobody_launches_into_another_users_allocation(site: Site, who: str, error: type[HALError]) -> None:
    """To a user there is no such job; an operator, who sees it, would act as its user."""
    with pytest.raises(error):
        launch(site, site.connections(site.bob.name, who))


def test_a_stolen_token_of_a_step_launches_into_its_own_job_alone(site: Site) -> None:
    """Neither into another user's jobs nor into those of the user from whom it was stolen."""
    script = 'echo "$HAL_STEP_TOKEN"; exec sleep 600'
    with site.hal.client() as client:
        made = [client.submit(["sh", "-c", script], user=user.name) for user in (site.bob, site.alice)]
        until(lambda: all("\n" in one.logs() for one in made), "they did not run")
        stolen = [site.with_token(one.logs().strip()) for one in made]
        for connections in stolen:
            with pytest.raises(HALError):
                launch(site, connections)
        own = {"rank": 0, "ranks": 1, "first_rank": 0, "size": 1}
        text, _ = said(launch(site, stolen[0], int(made[0].id), **own))
        assert text.strip() == str(site.bob.uid)
        for one in made:
            one.cancel()


def test_variables_reach_the_program_and_nothing_that_begins_it(site: Site) -> None:
    """What the loader reads of a client's variables, it reads as the job's user."""
    setup = message(VARIABLES, b"LD_PRELOAD=/tmp/evil.so\0PATH=/bin:/usr/bin\0HAL_RANK=9\0") + message(BEGIN, b"/")
    script = "echo $HAL_RANK $LD_PRELOAD; id -u"
    text, _ = said(launch(site, site.connections(site.alice.name), setup=setup, ranks=1, argv=["sh", "-c", script]))
    assert text.split() == ["1", "/tmp/evil.so", str(site.alice.uid)]


def test_a_directory_is_entered_with_the_rights_of_the_user(site: Site) -> None:
    """Root's are closed to it."""
    setup = message(BEGIN, str(site.hal.root).encode())
    with pytest.raises(HALError, match="cannot be entered: Permission denied"):
        launch(site, site.connections(site.alice.name), setup=setup)


@pytest.mark.parametrize(
    "setup", [message(VARIABLES, b"x" * (1 << 20)) * 2, b"\xff" * 64], ids=["too-many", "nonsense"]
)
def test_a_client_that_breaks_the_rules_begins_nothing(site: Site, setup: bytes) -> None:
    """And the next one is served."""
    with pytest.raises(HALError):
        launch(site, site.connections(site.alice.name), setup=setup)
    assert said(launch(site, site.connections(site.alice.name)))[1] == [EXIT, EXIT]


@pytest.mark.parametrize(
    "asked",
    [
        {"ranks": 257, "size": 300, "first_rank": 0},
        {"ranks": 2, "size": 2, "first_rank": 1},
        {"ranks": 1, "size": 1 << 20, "first_rank": 0},
        {"ranks": 0, "size": 1, "first_rank": 0},
        {"ranks": 2, "size": 3, "first_rank": 1, "stride": 2},
        {"stride": 0},
        {"stride": -1},
        {"terminal": True},
        {"argv": []},
    ],
)
def test_ranks_out_of_bounds_are_refused(site: Site, asked: dict[str, Any]) -> None:
    """By the controller; no node hears of them."""
    with pytest.raises(SpecError):
        launch(site, site.connections(site.alice.name), **asked)
