"""Reading output: to its end, as it grows, over cuts and over retries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import hal
from hal.cli.jobs.output_streams import prefixed
from hal.client.flows.log_follower import LogFollower
from hal.client.sync_client import Client
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply, as_json, problem


def part(asked: Asked, text: bytes, *, ended: bool = True) -> Reply:
    """The piece of a file that was asked for."""
    offset = int(asked.query.get("offset", "0"))
    data = text[offset:]
    if "limit" in asked.query:
        data = data[: int(asked.query["limit"])]
    headers = {"HAL-Log-Offset": str(offset), "HAL-Log-Size": str(len(text)), "HAL-Log-Ended": "1" if ended else "0"}
    return Reply(data, headers=headers)


def test_logs_gives_the_whole_file_as_text(serve: Serve, client: Client) -> None:
    """What is not UTF-8 is replaced."""
    serve(lambda asked: part(asked, b"a\xffb\n"))
    assert hal.Job(client, "1").logs() == "a\ufffdb\n"


def test_logs_asks_for_the_stream_task_rank_and_attempt_that_are_meant(serve: Serve, client: Client) -> None:
    """Each becomes a query parameter."""
    server = serve(lambda asked: part(asked, b""))
    hal.Job(client, "1").logs("stderr", task=3, rank=2, attempt=4)
    asked = {key: server.asked[0].query[key] for key in ("stream", "task", "rank", "attempt")}
    assert asked == {"stream": "stderr", "task": "3", "rank": "2", "attempt": "4"}


def test_a_followed_log_goes_on_where_it_broke_off(serve: Serve, client: Client) -> None:
    """The connection is cut after 5 bytes; nothing is given twice, nothing is lost."""
    text = b"hello world\n"

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "1", "task": 0, "state": "succeeded", "attempt": 1})
        offset = int(asked.query["offset"])
        if "follow" not in asked.query:
            return (
                part(asked, text[:5], ended=False)
                if offset < 5
                else part(asked, text[: max(5, offset)], ended=offset == 12)
            )
        headers = {"HAL-Log-Offset": str(offset)}
        if offset == 0:
            return Reply(headers=headers, chunks=[b"he", b"llo"], cut=True)
        return Reply(headers=headers, chunks=[text[offset:]])

    serve(answer)
    assert b"".join(hal.Job(client, "1").log_bytes(follow=True)) == text


def test_a_stream_that_a_stopping_controller_ends_is_opened_again(serve: Serve, client: Client) -> None:
    """An orderly end of the answer is not the end of the file: only the file's own word counts."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "1", "task": 0, "state": "succeeded", "attempt": 1})
        if "follow" in asked.query:
            return Reply(chunks=[b"ab"] if asked.query["offset"] == "0" else [b"cd"])
        return part(asked, b"abcd" if asked.query["offset"] == "4" else b"ab", ended=asked.query["offset"] == "4")

    serve(answer)
    assert "".join(hal.Job(client, "1").logs(follow=True)) == "abcd"


def test_what_was_dropped_before_it_was_read_is_counted_and_nothing_comes_twice(serve: Serve, client: Client) -> None:
    """The stream ends where the file was rotated away; what is kept begins 3 bytes further on."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "1", "task": 0, "state": "succeeded", "attempt": 1})
        if "follow" in asked.query:
            return Reply(chunks=[b"ab"])
        kept = max(int(asked.query["offset"]), 5)
        headers = {"HAL-Log-Offset": str(kept), "HAL-Log-Size": "7", "HAL-Log-Ended": "1"}
        return Reply(b"abcdefg"[kept:], headers=headers)

    serve(answer)
    follower = LogFollower(client.connections, "1")
    assert b"".join(follower.pieces(follow=True)) == b"abfg"
    assert follower.dropped == 3


def test_following_goes_on_with_the_next_attempt(serve: Serve, client: Client) -> None:
    """A task that is retried writes a new file; both are given, in order."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            second = any(one.query.get("attempt") == "1" for one in server.asked)
            state = "succeeded" if second else "running"
            return as_json({"job": "1", "task": 0, "state": state, "attempt": 2 if second else 1})
        text = {"1": b"first\n", "2": b"second\n"}[asked.query["attempt"]]
        return Reply(chunks=[text]) if "follow" in asked.query else part(asked, text)

    server = serve(answer)
    assert "".join(hal.Job(client, "1").logs(follow=True)) == "first\nsecond\n"


def test_following_from_the_first_attempt_leaves_out_one_that_never_ran(serve: Serve, client: Client) -> None:
    """Attempt 2 was refused by its node; 1 and 3 wrote something."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "1", "task": 0, "state": "succeeded", "attempt": 3})
        if asked.query["attempt"] == "2":
            return problem(404, "not-found", "attempt 1.0.2 has no output")
        text = {"1": b"first\n", "3": b"third\n"}[asked.query["attempt"]]
        return Reply(chunks=[text]) if "follow" in asked.query else part(asked, text)

    serve(answer)
    follower = LogFollower(client.connections, "1", from_first=True)
    assert b"".join(follower.pieces(follow=True)) == b"first\nthird\n"


def test_a_follower_that_is_stopped_still_gives_what_is_there(serve: Serve, client: Client) -> None:
    """The job ends, and following is stopped, while the follower reads that the task has not begun."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            first = len(server.asked) == 1
            if first:
                follower.stop()
            state = "allocated" if first else "succeeded"
            return as_json({"job": "1", "task": 0, "state": state, "attempt": 1})
        return part(asked, b"all\n")

    server = serve(answer)
    follower = LogFollower(client.connections, "1", from_first=True)
    assert b"".join(follower.pieces(follow=True)) == b"all\n"


def test_a_character_cut_between_two_pieces_is_kept_whole(serve: Serve, client: Client) -> None:
    """The euro sign is three bytes."""
    text = "5 €\n".encode()

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "1", "task": 0, "state": "succeeded", "attempt": 1})
        return Reply(chunks=[text[:3], text[3:]]) if "follow" in asked.query else part(asked, text)

    serve(answer)
    assert "".join(hal.Job(client, "1").logs(follow=True)) == "5 €\n"


def test_a_task_that_never_ran_has_no_output(serve: Serve, client: Client) -> None:
    """A cancelled pending task ends the stream at once."""
    serve(lambda asked: as_json({"job": "1", "task": 0, "state": "cancelled"}))
    assert list(hal.Job(client, "1").logs(follow=True)) == []


@given(st.lists(st.binary(max_size=12), max_size=8))
def test_prefixed_lines_are_the_same_however_the_bytes_arrive(pieces: list[bytes]) -> None:
    """Cutting the stream elsewhere changes nothing."""
    whole = b"".join(pieces)
    expected = b"".join(b"> " + line + b"\n" for line in whole.split(b"\n")) if whole else b""
    if whole.endswith(b"\n"):
        expected = expected.removesuffix(b"> \n")
    assert b"".join(prefixed(iter(pieces), "> ")) == expected
