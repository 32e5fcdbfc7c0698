"""Outputs of many tasks are put together whatever pieces the network makes of an answer, also over broken ones."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import hal
from hal.client.job import Job
from hal.client.sync_client import Client
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply

HEADERS = {"Content-Type": "application/vnd.hal.outputs"}


def piece(task: int, data: bytes, **more: Any) -> bytes:
    """One piece of an answer."""
    return json.dumps({"task": task, "attempt": 1, "bytes": len(data), **more}).encode() + b"\n" + data


WHOLE = piece(0, b"a\nb", size=3) + piece(1, b"", error="node n1 is not connected") + piece(2, b"long ", size=9)
WHOLE += piece(2, b"line", offset=5, size=9) + piece(4, b"", path="/tmp/x")
FOUND = [(0, b"a\nb", True), (1, b"", False), (2, b"long line", True), (4, b"", False)]


def outputs(client: Client) -> list[tuple[int, bytes, bool]]:
    """Task, data, whether it is all."""
    return [(one.task, one.data, one.complete) for one in Job(client, "7").outputs()]


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_in_any_pieces_gives_the_same_outputs(seed: int, serve: Serve, client: Client) -> None:
    """Cut anywhere, also inside of a line and of a new-line byte that belongs to data."""
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(1, len(WHOLE)), 12))
    chunks = [WHOLE[low:high] for low, high in zip([0, *cuts], [*cuts, len(WHOLE)], strict=True)]
    serve(lambda asked: Reply(headers=HEADERS, chunks=chunks))
    assert outputs(client) == FOUND


def test_an_answer_that_breaks_off_is_continued_behind_the_last_whole_output(serve: Serve, client: Client) -> None:
    """Inside of task 2: it is read again, and nothing twice."""
    rest = WHOLE[WHOLE.index(b'{"task": 2') :]

    def answer(asked: Asked) -> Reply:
        if asked.query["after"] == "-1":
            return Reply(headers=HEADERS, chunks=[WHOLE[: WHOLE.index(b"line")]], cut=True)
        assert asked.query["after"] == "1"
        return Reply(headers=HEADERS, chunks=[rest])

    serve(answer)
    assert outputs(client) == FOUND


def test_what_is_no_answer_of_hal_is_an_error(serve: Serve, client: Client) -> None:
    """Not a loop."""
    serve(lambda asked: Reply(headers=HEADERS, chunks=[b"<html>\n"]))
    with pytest.raises(hal.InternalError, match="is not understood"):
        outputs(client)
