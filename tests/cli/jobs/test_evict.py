"""`hal evict` and `hal node drain --evict`: what they ask for, what they say, what they return."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.conftest import Ran, Serve
from tests.cli.nodes.test_node import answering
from tests.client.scripted_server import as_json

Hal = Callable[..., Ran]


def test_evicting_jobs_names_mode_reason_and_time(serve: Serve, hal: Hal) -> None:
    """What was not said is left to the controller."""
    server = serve(answering({"id": "42", "ok": True, "state": "finalising"}))
    ran = hal("evict", "42", "43.7", "--mode", "checkpoint", "--within", "2m", "--reason", "spot notice")
    assert (ran.code, ran.out) == (0, "42 is being stopped\n")
    asked = {"mode": "checkpoint", "reason": "spot notice", "within": "2m", "ids": ["42", "43.7"]}
    assert [(one.path, one.json) for one in server.asked] == [("/v1/jobs/evict", asked)]


def test_evicting_a_node_says_what_leaves_it(serve: Serve, hal: Hal) -> None:
    """The state of the node is not news."""
    server = serve(answering({"id": "n1", "ok": True, "state": "up", "detail": "2 tasks leave"}))
    ran = hal("evict", "--node", "n1")
    assert (ran.code, ran.out) == (0, "n1 2 tasks leave\n")
    assert [one.json for one in server.asked] == [{"mode": "requeue", "nodes": ["n1"]}]


def test_evicting_by_filter_takes_what_runs_once_it_is_confirmed(serve: Serve, hal: Hal) -> None:
    """Of all states those in which something runs."""
    server = serve(answering({"id": "42", "ok": True, "state": "finalising"}, after={"jobs": []}))
    assert hal("evict", "--queue", "scavenger", "-y").code == 0
    states = "allocated,preparing,running,suspended,finalising"
    assert server.asked[0].json == {"mode": "requeue", "filter": {"queue": "scavenger", "state": states}}


def test_one_way_to_name_what_is_evicted(serve: Serve, hal: Hal) -> None:
    """None, or two of them, asks the controller nothing."""
    server = serve(lambda asked: as_json({}))
    assert [hal("evict").code, hal("evict", "42", "--node", "n1").code, hal("evict", "42", "-u", "eve").code] == [2] * 3
    assert server.asked == []


def test_a_drain_passes_on_how_it_evicts(serve: Serve, hal: Hal) -> None:
    """Mode and times as they were typed."""
    server = serve(answering({"id": "n1", "ok": True, "state": "draining"}))
    ran = hal("node", "drain", "n1", "--evict", "requeue", "--within", "2h", "--grace", "1m", "--no-wait")
    assert (ran.code, ran.out) == (0, "n1 draining\n")
    assert server.asked[0].json == {"evict": "requeue", "within": "2h", "grace": "1m", "nodes": ["n1"]}


def test_a_time_without_an_eviction_is_a_mistake(serve: Serve, hal: Hal) -> None:
    """It would be forgotten in silence."""
    serve(lambda asked: as_json({}))
    assert hal("node", "drain", "n1", "--within", "2h").code == 2


def test_a_node_shows_when_it_evicts_what_is_left(serve: Serve, hal: Hal) -> None:
    """Mode, instant and grace; or that it has."""
    closure = {"source": "person", "drain": True, "evict": "requeue", "evict_at_ms": 86_400_000, "grace_ms": 30_000}
    node = {"name": "n1", "state": "draining", "closures": [closure]}
    serve(lambda asked: as_json(node))
    assert "requeue of what is left at 1970-01-0" in hal("node", "show", "n1").out
    closure["evicted"] = True
    assert "was evicted (requeue)" in hal("node", "show", "n1").out
