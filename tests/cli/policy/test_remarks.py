"""Remarks on a change of the policy: they advise what can be done, and never make a failure of a change that holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, Script, as_json, problem

Hal = Callable[..., Ran]

NODES = as_json({"nodes": [{"name": "n1", "state": "up", "labels": {"arch": "x86"}}]})
UPKEEP = {"start_ms": 1, "duration": "1h", "nodes": ["n1"], "maintenance": True}


def holding(policy: dict[str, Any], changes: list[dict[str, Any]] | None = None, nodes: Reply = NODES) -> Script:
    """A controller of one node that accepts every change, and whose policy is this one before and after it."""

    def answer(asked: Asked) -> Reply:
        if asked.path == "/v1/nodes":
            return nodes
        told = {"changes": changes or []} if asked.method == "PATCH" else {"at_ms": 1, "policy": policy}
        return as_json({"version": 2, **told})

    return answer


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        ("arch!=x86", ""),
        ("arch=x68", "; did you mean 'x86'?"),
        ("!arch", ""),
        ("arc", "; did you mean 'arch'?"),
        ("arc=x86", "; did you mean 'arch'?"),
    ],
)
def test_a_near_value_is_advised_only_where_nodes_must_say_it(rule: str, hint: str, serve: Serve, hal: Hal) -> None:
    """Who excludes a value that every node says has not misspelt it."""
    serve(holding({"queues": {"q": {"nodes": [rule]}}}))
    ran = hal("queue", "set", "q", "--nodes", rule)
    told = [line for line in ran.err.splitlines() if line.startswith("note: ")]
    assert (ran.code, told) == (0, [f"note: no node has {rule} at present, so its jobs wait{hint}"])


def test_an_option_is_named_only_by_a_command_that_has_it(serve: Serve, hal: Hal) -> None:
    """`hal booking set` has --start, `hal policy set` has not."""
    serve(holding({"bookings": {"b": UPKEEP}}, [{"entry": "bookings.b", "field": "duration", "after": "1h"}]))
    over = "its time is over, so it reserves nothing"
    assert f"note: {over}; set a new start, such as --start +2h\n" in hal("booking", "set", "b", "--duration", "1h").err
    assert f"note: bookings.b: {over}\n" in hal("policy", "set", "bookings.b.duration=1h").err


@pytest.mark.parametrize(
    ("args", "policy", "nodes"),
    [
        (("queue", "set", "q", "--nodes", "big"), {"queues": {"q": {"nodes": ["big"]}}}, problem(403, "denied", "no")),
        (("queue", "add", "q", "--nodes", "big"), {"tables": "of a newer HAL"}, NODES),
        (("limit", "add", "l", "--resources", "fpga=1", "--queue", "gone"), {}, NODES),
        (("policy", "set", 'queues.q.nodes=["big"]'), {"queues": {"q": {}}}, problem(403, "denied", "no")),
        (("policy", "set", 'queues.gone.nodes=["big"]'), {}, NODES),
    ],
    ids=["nodes", "policy", "changed since", "nodes for several", "several changed since"],
)
def test_a_change_that_holds_succeeds_without_what_can_be_said_about_it(
    args: tuple[str, ...], policy: dict[str, Any], nodes: Reply, serve: Serve, hal: Hal
) -> None:
    """Nodes or policy cannot be read any more, or the policy has become one that the change does not fit."""
    serve(holding(policy, [{"entry": "queues.q", "field": "nodes", "after": ["big"]}], nodes))
    ran = hal(*args)
    assert (ran.code, ran.out != "") == (0, True), ran.err
    assert ran.err.splitlines() == ["version 2 of the policy is active"]
