"""`hal jobs` where nothing matches: what is mistyped is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]


def answer(asked: Asked) -> Reply:
    """No jobs, two nodes, a queue."""
    if asked.path == "/v1/nodes":
        return as_json({"nodes": [{"name": "gpu1", "state": "up"}, {"name": "big", "state": "up"}]})
    if asked.path == "/v1/queues":
        return as_json({"queues": [{"name": "short"}]})
    return as_json({"jobs": []})


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("--node", "gpu2"), "there is no node 'gpu2'; did you mean gpu1?"),
        (("--node", "xyz"), "there is no node 'xyz'; see: hal nodes"),
        (("--queue", "shrt", "--all"), "there is no queue 'shrt'; did you mean short?"),
        (("--queue", "short", "--node", "big"), "no jobs match; `hal jobs --all` includes ended ones"),
    ],
)
def test_a_node_or_queue_that_is_not_there_is_named(words: tuple[str, ...], note: str, serve: Serve, hal: Hal) -> None:
    """The exit code is 0: a queue or node of ended jobs may be gone."""
    serve(answer)
    ran = hal("jobs", *words)
    assert (ran.code, ran.err.strip()) == (0, note)


def test_a_listing_for_programs_asks_for_nothing_more(serve: Serve, hal: Hal) -> None:
    """JSON has no notes."""
    server = serve(answer)
    assert hal("jobs", "--node", "gpu2", "--json").out.strip() == "[]"
    assert [asked.path for asked in server.asked] == ["/v1/jobs"]


def test_a_sort_that_is_empty_is_refused(serve: Serve, hal: Hal) -> None:
    """As every option that is given without a value."""
    serve(answer)
    assert [hal("jobs", "--sort", text).code for text in ("", ",", "-", "id,")] == [2, 2, 2, 2]
