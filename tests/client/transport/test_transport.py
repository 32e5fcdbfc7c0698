"""Connections: kept, shared, replaced when they break, and requests repeated only when that is harmless."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import hal
from hal.client.address_lookup import find_address
from hal.client.addresses.address import Address
from hal.client.addresses.endpoints import Endpoint
from hal.client.sync_client import Client
from hal.client.transport.exchange import MAX_CONNECTIONS
from hal.runtime.home import Home
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply, ScriptedServer, as_json, problem


def job(number: str = "1", state: str = "running", **more: object) -> dict[str, object]:
    return {"id": number, "state": state, **more}


def test_one_connection_carries_many_requests(serve: Serve, client: Client) -> None:
    """Three requests in a row need one connection."""
    server = serve(lambda asked: as_json(job()))
    for _ in range(3):
        client.job(1)
    assert server.connections == 1


def test_a_connection_that_the_controller_closed_is_replaced_unnoticed(serve: Serve, client: Client) -> None:
    """A keep-alive that ran out between two requests is no error, also for a request that must not be repeated."""
    server = serve(lambda asked: Reply(b'{"results": [{"id": "1"}]}', close=True))
    client.requeue(1, 2)
    assert server.hung_up.wait(20)
    client.requeue(1, 2)
    assert server.paths() == ["POST /v1/jobs/requeue"] * 2


def test_threads_share_a_bounded_number_of_connections(serve: Serve, client: Client) -> None:
    """Forty threads at once never have more than MAX_CONNECTIONS requests under way, and all get their answer."""
    everybody_there = threading.Event()

    def answer(asked: Asked) -> Reply:
        if server.at_once == MAX_CONNECTIONS:
            everybody_there.set()
        return Reply(b'{"id": "1", "state": "running"}', before=everybody_there)

    server = serve(answer)
    ends: list[str] = []
    threads = [threading.Thread(target=lambda: ends.append(client.job(1).id)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert ends == ["1"] * 40
    assert server.most_at_once == MAX_CONNECTIONS


def test_a_read_is_repeated_when_the_answer_does_not_come(serve: Serve, client: Client) -> None:
    """The connection breaks twice before an answer; the third try gives it."""
    server = serve(lambda asked: Reply(cut=True) if len(server.asked) < 3 else as_json(job()))
    assert client.job(1).info.state == "running"
    assert len(server.asked) == 3


def test_a_request_that_is_one_too_many_is_sent_again_when_there_is_room(serve: Serve, client: Client) -> None:
    """429 means that nothing was done: a requeue, too, is sent again, after as long as the controller said."""
    busy = Reply(problem(429, "too-many", "too often").body, 429, {"Retry-After": "0"})
    server = serve(lambda asked: busy if len(server.asked) < 3 else Reply(b'{"results": [{"id": "1"}]}'))
    client.requeue(1, 2)
    assert server.paths() == ["POST /v1/jobs/requeue"] * 3


def test_a_submission_is_repeated_under_the_same_idempotency_key(serve: Serve, client: Client) -> None:
    """An answer that is lost leaves it open whether jobs were made; the same key makes the second try harmless."""
    server = serve(lambda asked: Reply(cut=True) if len(server.asked) == 1 else as_json({"ids": ["7"]}, 201))
    assert client.submit(["true"]).id == "7"
    first, second = (asked.headers["idempotency-key"] for asked in server.asked)
    assert first == second != ""


def test_every_submission_has_a_key_of_its_own(serve: Serve, client: Client) -> None:
    """Submitting the same command twice is two jobs."""
    server = serve(lambda asked: as_json({"ids": ["7"]}, 201))
    client.submit(["true"])
    client.submit(["true"])
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 2


def test_a_requeue_of_several_jobs_whose_answer_is_lost_is_not_repeated(serve: Serve, client: Client) -> None:
    """Doing it twice could run a job twice: the caller is told that the outcome is unknown."""
    server = serve(lambda asked: Reply(cut=True))
    with pytest.raises(hal.UnreachableError, match="may or may not have been done"):
        client.requeue(1, 2)
    assert len(server.asked) == 1


def test_a_controller_that_restarts_is_waited_for(serve: Serve, client: Client) -> None:
    """A client that was answered before goes on when a new controller listens in the same place."""
    serve(lambda asked: as_json(job())).stop()
    before = serve(lambda asked: as_json(job()))
    client.job(1)
    before.stop()
    threading.Timer(0.2, lambda: serve(lambda asked: as_json(job("1", "succeeded")))).start()
    assert client.job(1).state == "succeeded"


def test_a_hal_that_was_never_started_is_reported_at_once(hal_home: Path) -> None:
    """The error names the home and says how to start it."""
    with pytest.raises(hal.UnreachableError, match="is not running") as caught:
        hal.connect(home=hal_home)
    assert caught.value.hint == "start it with: hal up"
    assert str(hal_home) in caught.value.message


def test_the_hint_names_a_home_that_is_not_the_default_one(hal_home: Path, tmp_path: Path) -> None:
    """`hal up` alone would start another HAL."""
    with pytest.raises(hal.UnreachableError) as caught:
        hal.connect(home=tmp_path / "other")
    assert caught.value.hint == f"start it with: hal up --home {tmp_path / 'other'}"


def test_a_socket_that_nobody_listens_on_is_a_stopped_controller(hal_home: Path, serve: Serve) -> None:
    """The socket file outlives a killed controller."""
    serve(lambda asked: as_json({})).stop()
    with pytest.raises(hal.UnreachableError, match="its controller has stopped"):
        hal.connect(home=hal_home)


def test_tcp_carries_the_bearer_token_of_the_home(hal_home: Path) -> None:
    """The token file of the home is used where no other token is given."""
    home = Home(hal_home)
    home.create()
    token = home.token_text()
    server = ScriptedServer(lambda asked: as_json({"version": "0.1.0"}))
    home.tcp_file.write_text(f"127.0.0.1:{server.port}\n")
    try:
        with hal.connect(url=f"http://127.0.0.1:{server.port}"):
            assert server.asked[0].headers["authorization"] == f"Bearer {token}"
        hal.connect(url=f"http://127.0.0.1:{server.port}", token="other").close()
        assert server.asked[1].headers["authorization"] == "Bearer other"
    finally:
        server.stop()


def test_hal_url_and_hal_token_name_a_hal_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says is used unless the caller says otherwise."""
    monkeypatch.setenv("HAL_URL", "http://[::1]:99")
    monkeypatch.setenv("HAL_TOKEN", "t")
    assert find_address() == Address(endpoints=(Endpoint("::1", 99),), token="t")
    assert find_address().endpoints[0].name == "[::1]:99"
    assert find_address("/x").home is not None


@pytest.mark.parametrize(
    "url", ["localhost:4250", "ftp://x", "http://", "http://h:0x", "http://h/v1", "unix:", "http://h:99999"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """The error shows how to write one."""
    with pytest.raises(hal.SpecError, match="is not the URL of a HAL"):
        find_address(url=url)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid-spec", hal.SpecError),
        (404, "not-found", hal.NotFoundError),
        (403, "denied", hal.DeniedError),
        (409, "conflict", hal.ConflictError),
        (429, "overloaded", hal.OverloadedError),
        (504, "timed-out", hal.TimedOutError),
        (500, "internal", hal.InternalError),
        (401, "unauthorized", hal.DeniedError),
        (413, "too-large", hal.SpecError),
        (418, "something-new", hal.HALError),
    ],
)
def test_a_problem_document_becomes_the_error_it_names(
    status: int, code: str, kind: type[hal.HALError], serve: Serve, client: Client
) -> None:
    """Class by code, message and hint as the controller wrote them; all derive from HALError."""
    serve(lambda asked: problem(status, code, "no", "try yes"))
    with pytest.raises(hal.HALError) as caught:
        client.job(1)
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint, caught.value.code) == ("no", "try yes", code)


def test_an_error_page_that_is_no_problem_document_still_says_something(serve: Serve, client: Client) -> None:
    """Status and the beginning of the page are shown."""
    serve(lambda asked: Reply(b"<h1>no such route</h1>", 404))
    with pytest.raises(hal.NotFoundError, match="status 404: <h1>no such route"):
        client.job(1)


def test_an_answer_of_another_shape_is_an_error_that_suspects_the_version(serve: Serve, client: Client) -> None:
    """Never a KeyError."""
    serve(lambda asked: as_json({"identity": 1}))
    with pytest.raises(hal.InternalError, match="not understood"):
        client.job(1)
