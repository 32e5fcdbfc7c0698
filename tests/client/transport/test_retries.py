"""When a request is sent again and when not: without sockets, under a clock of the test's."""

from __future__ import annotations

import contextlib
import json

import pytest

from hal.client.addresses.address import Address, StartingError
from hal.client.addresses.endpoints import Endpoint
from hal.client.transport.backoff import FIRST_DELAY_S, LONGEST_DELAY_S, LONGEST_TURN_S
from hal.client.transport.exchange import Answer, BrokenConnectionError, Request, lost_leader
from hal.client.transport.retries import Tries
from hal.client.transport.rotation import STARTING_S, Rotation
from hal.core.model.errors import UnreachableError

A, B = Endpoint("a", 1), Endpoint("b", 1)
READ = Request("GET", "/v1/jobs")
WRITE = Request("POST", "/v1/jobs/requeue", repeatable=False)


def tries(request: Request = READ, *, answered: bool = True, reconnect_s: float = 1.0) -> tuple[Tries, Rotation]:
    """Those of a request to controllers a and b."""
    address = Address(endpoints=(A, B))
    rotation = Rotation(address.endpoints)
    return Tries(request, address, rotation, answered=answered, reconnect_s=reconnect_s), rotation


def answer(status: int, code: str = "", **headers: str) -> Answer:
    """A problem document."""
    return Answer(status, headers, json.dumps({"code": code}).encode())


@pytest.mark.parametrize("status", [200, 400, 404, 409, 500, 501, 504])
def test_what_a_leader_answers_is_the_answer(status: int) -> None:
    """Errors, too: sending it again would change nothing."""
    one, rotation = tries()
    assert one.after_answer(A, answer(status), 0.0) is None
    assert rotation.current == A


@pytest.mark.parametrize(
    ("status", "code", "request_", "again"),
    [
        (503, "no-leader", READ, True),
        (502, "no-leader", WRITE, True),
        (503, "broke-off", READ, True),
        (503, "broke-off", WRITE, False),
        (503, "ending", READ, True),
        (502, "ending", WRITE, False),
        (503, "store", READ, False),
        (500, "no-leader", READ, False),
    ],
)
def test_what_no_leader_answered_is_asked_again(status: int, code: str, request_: Request, again: bool) -> None:
    """Nothing was done where nobody led; where the answer was lost, only what may be repeated is."""
    found = answer(status, code)
    assert lost_leader(request_, found) is again
    one, rotation = tries(request_)
    delay_s = one.after_answer(A, found, 0.0)
    assert (delay_s, rotation.current) == ((FIRST_DELAY_S, B) if again else (None, A))


def test_too_many_requests_wait_as_long_as_they_are_told_up_to_a_bound() -> None:
    """Any request: nothing was done. 60 s in all: 25 and 25, then 25 more are too many."""
    one, rotation = tries(WRITE)
    refused = answer(429, "too-many", **{"retry-after": "25"})
    assert LONGEST_TURN_S == 60.0
    assert [one.after_answer(A, refused, 0.0) for _ in range(3)] == [25.0, 25.0, None]
    assert rotation.current == A


def test_every_controller_is_tried_before_any_wait() -> None:
    """a and b at once, then a pause; after a second without success it ends."""
    one, rotation = tries()
    gone = UnreachableError("gone")
    assert (one.after_unreachable(A, gone, 0.0), rotation.current) == (0.0, B)
    assert (one.after_unreachable(B, gone, 0.0), rotation.current) == (FIRST_DELAY_S, A)
    assert one.after_unreachable(A, gone, 1.5) == 0.0
    with pytest.raises(UnreachableError, match="none of 2 controllers answers: http://a:1: gone; http://b:1: gone"):
        one.after_unreachable(B, gone, 1.5)


def test_a_controller_that_never_answered_is_not_waited_for() -> None:
    """One that is alone gets no second try."""
    address = Address(endpoints=(A,))
    one = Tries(READ, address, Rotation(address.endpoints), answered=False, reconnect_s=30.0)
    with pytest.raises(UnreachableError, match="gone"):
        one.after_unreachable(A, UnreachableError("gone"), 0.0)


def test_a_read_whose_connection_broke_is_sent_again_until_the_time_is_over() -> None:
    """To the next controller; the last error says what broke."""
    one, rotation = tries()
    broken = BrokenConnectionError("reset", timed_out=False)
    assert (one.after_break(A, broken, 0.0), rotation.current) == (FIRST_DELAY_S, B)
    with pytest.raises(UnreachableError, match=r"no HAL answers at http://b:1: the connection broke \(reset\)"):
        one.after_break(B, broken, 2.0)


def test_a_write_whose_connection_broke_is_never_sent_twice() -> None:
    """The error says that it may have been done."""
    one, rotation = tries(WRITE)
    with pytest.raises(UnreachableError, match="may or may not have been done"):
        one.after_break(A, BrokenConnectionError("reset", timed_out=False), 0.0)
    assert rotation.current == A


def test_an_answer_that_does_not_come_names_the_request_and_the_time() -> None:
    """30 s and what the request itself asked to wait: 25 s."""
    one, _ = tries(Request("GET", "/v1/jobs/1/wait", repeatable=False, wait_s=25.0))
    with pytest.raises(UnreachableError, match=r"did not answer GET /v1/jobs/1/wait within 55 s"):
        one.after_break(A, BrokenConnectionError("slow", timed_out=True), 0.0)


def test_a_controller_that_is_starting_is_waited_for() -> None:
    """Whoever types a command while it restarts need not type it again; one that does not run is not waited for."""
    address = Address(socket_path="/there")

    def one() -> Tries:
        return Tries(WRITE, address, Rotation(()), answered=False, reconnect_s=20.0)

    starting, now_s = one(), 0.0
    with contextlib.suppress(StartingError):
        while True:
            now_s += starting.after_unreachable(None, StartingError("loading its jobs"), now_s)
    assert STARTING_S - LONGEST_DELAY_S <= now_s <= STARTING_S
    with pytest.raises(UnreachableError):
        one().after_unreachable(None, UnreachableError("not running"), 0.0)
