"""The event feed: pages, server-sent events however they are cut, resumption."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hal
from hal.client.rest.server_events import MAX_EVENT_BYTES, EventReader
from hal.client.sync_client import Client
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply, as_json


def event(sequence: int) -> dict[str, object]:
    return {"sequence": sequence, "at_ms": 5, "kind": "jobs-submitted", "jobs": [1]}


def sent(sequence: int) -> bytes:
    return f"id: {sequence}\nevent: jobs-submitted\ndata: {json.dumps(event(sequence))}\n\n".encode()


def test_past_events_are_read_to_the_end(serve: Serve, client: Client) -> None:
    """Each page begins behind the last event of the one before."""

    def answer(asked: Asked) -> Reply:
        after = int(asked.query["after"])
        return as_json({"events": [event(n) for n in range(after + 1, min(after + 3, 6))]})

    serve(answer)
    assert [one.sequence for one in client.events()] == [1, 2, 3, 4, 5]


def test_a_followed_feed_resumes_behind_the_last_event(serve: Serve, client: Client) -> None:
    """After a cut the last sequence number is sent, and nothing is given twice."""

    def answer(asked: Asked) -> Reply:
        if "last-event-id" not in asked.headers:
            return Reply(headers={"Content-Type": "text/event-stream"}, chunks=[b": hello\n\n", sent(7)], cut=True)
        return Reply(chunks=[sent(int(asked.headers["last-event-id"]) + 1)])

    server = serve(answer)
    assert [one.sequence for one in islice(client.events(follow=True), 2)] == [7, 8]
    assert server.asked[0].headers["accept"] == "text/event-stream"


def test_a_feed_that_the_controller_ends_is_opened_again(serve: Serve, client: Client) -> None:
    """`closed` and `lagged` carry no event; an `error` is one."""

    def answer(asked: Asked) -> Reply:
        last = int(asked.headers.get("last-event-id", "0"))
        if last == 2:
            refused = json.dumps({"code": "overloaded", "detail": "too many watch", "status": 503})
            return Reply(chunks=[f"event: error\ndata: {refused}\n\n".encode()])
        ending = b"closed" if last else b"lagged"
        return Reply(chunks=[sent(last + 1), b"event: " + ending + b'\ndata: {"after": 1}\n\n'])

    serve(answer)
    feed = client.events(follow=True)
    assert [one.sequence for one in islice(feed, 2)] == [1, 2]
    with pytest.raises(hal.OverloadedError, match="too many watch"):
        next(feed)


@given(st.lists(st.integers(1, 40), max_size=12), st.booleans())
def test_events_are_the_same_however_the_bytes_arrive(cuts: list[int], crlf: bool) -> None:
    """A cut may fall inside a line, a character or a line end."""
    text = "id: 1\ndata: a€\ndata: b\n\n: note\n\nevent: x\ndata:c\nid: 2\n\n".encode()
    text = text.replace(b"\n", b"\r\n") if crlf else text
    reader, found, at = EventReader(), [], 0
    for cut in [*cuts, len(text)]:
        found += list(reader.feed(text[at : at + cut]))
        at += cut
    found += list(reader.feed(text[at:]))
    assert [(one.data, one.event, one.id) for one in found] == [("a€\nb", "message", "1"), ("c", "x", "2")]


def test_a_line_that_comes_byte_by_byte_is_read_once() -> None:
    """A hostile server cuts an event into its bytes: each of them costs the same, however many came before it."""
    reader = EventReader()
    text = b"data: " + b"x" * 300_000 + b"\n\n"
    found = [one for byte in text for one in reader.feed(bytes([byte]))]
    assert [len(one.data) for one in found] == [300_000]


def test_an_endless_event_is_refused() -> None:
    """A sender at fault cannot fill the memory."""
    reader = EventReader()
    line = b"data: " + b"x" * (1 << 20) + b"\n"
    for _ in range(MAX_EVENT_BYTES // len(line)):
        assert list(reader.feed(line)) == []
    with pytest.raises(hal.InternalError, match="longer than"):
        list(reader.feed(line))


def test_comments_that_keep_a_feed_alive_cost_nothing() -> None:
    """A quiet feed lives for weeks on them."""
    reader = EventReader()
    for _ in range(3 * MAX_EVENT_BYTES // 65_536):
        assert list(reader.feed(b": " + b" " * 65_533 + b"\n")) == []
