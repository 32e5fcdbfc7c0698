"""`hal node`: what it asks for, what it says, what it returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json, problem

Hal = Callable[..., Ran]


def answering(*outcomes: dict[str, Any], after: dict[str, Any] | None = None) -> Callable[[Asked], Reply]:
    """Outcomes to actions; `after` to everything else."""

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            return as_json({"results": list(outcomes)})
        return as_json(after) if after is not None else problem(404, "not-found", "there is no node 'n1'")

    return answer


def test_cordon_names_all_nodes_in_one_request_and_says_what_became_of_each(serve: Serve, hal: Hal) -> None:
    """One line each; the exit code is that of the refused one."""
    refused = {"id": "n9", "ok": False, "code": "not-found", "detail": "there is no node 'n9'", "hint": "look"}
    server = serve(answering({"id": "n1", "ok": True, "state": "cordoned"}, refused))
    ran = hal("node", "cordon", "n1", "n9", "--reason", "new disk")
    assert (ran.code, ran.out) == (3, "n1 cordoned\n")
    assert ran.err == "error: there is no node 'n9'\nhint: look\n"
    assert [(asked.path, asked.json) for asked in server.asked] == [
        ("/v1/nodes/cordon", {"nodes": ["n1", "n9"], "reason": "new disk"})
    ]


def test_a_drain_waits_until_each_node_is_empty(serve: Serve, hal: Hal) -> None:
    """A node that is drained twice in the command is waited for once."""
    empty = {"name": "n1", "state": "cordoned", "running": 0}
    server = serve(answering({"id": "n1", "ok": True, "state": "draining"}, after=empty))
    ran = hal("node", "drain", "n1", "n1")
    assert (ran.code, ran.out) == (0, "n1 is empty and cordoned\n")
    assert [asked.path for asked in server.asked] == ["/v1/nodes/drain", "/v1/nodes/n1/wait"]


def test_a_drain_that_takes_too_long_says_what_is_left(serve: Serve, hal: Hal) -> None:
    """Exit code 124, as `hal wait`."""
    holds = {"name": "n1", "state": "draining", "running": 2, "closures": [{"source": "person", "drain": True}]}
    serve(answering({"id": "n1", "ok": True, "state": "draining"}, after=holds))
    ran = hal("node", "drain", "n1", "--timeout", "0s")
    assert (ran.code, "node n1 still holds 2 tasks after 0 s" in ran.err) == (124, True)


def test_a_drain_that_somebody_takes_back_is_a_conflict(serve: Serve, hal: Hal) -> None:
    """It holds tasks and is up: waiting on would be for ever."""
    serve(answering({"id": "n1", "ok": True}, after={"name": "n1", "state": "up", "running": 1}))
    ran = hal("node", "drain", "n1")
    assert (ran.code, ran.err) == (6, "n1 is no longer being drained: it is up\n")


def test_a_drain_for_programs_is_a_list_of_nodes(serve: Serve, hal: Hal) -> None:
    """As they were when they were empty; without waiting it is a list of outcomes."""
    empty = {"name": "n1", "state": "cordoned", "running": 0}
    serve(answering({"id": "n1", "ok": True, "state": "draining"}, after=empty))
    assert json.loads(hal("node", "drain", "n1", "--json").out)[0]["state"] == "cordoned"
    assert json.loads(hal("node", "drain", "n1", "--json", "--no-wait").out)[0]["ok"] is True


def test_a_resume_that_leaves_a_node_closed_says_by_what(serve: Serve, hal: Hal) -> None:
    """On stderr: it is a remark."""
    serve(answering({"id": "n1", "ok": True, "state": "cordoned", "detail": "check disk: 1 GiB free"}))
    ran = hal("node", "resume", "n1")
    assert (ran.out, ran.err) == ("n1 cordoned\n", "n1 does not accept work yet: check disk: 1 GiB free\n")


def test_remove_says_how_a_node_comes_back(serve: Serve, hal: Hal) -> None:
    """Under its old name, too."""
    server = serve(answering({"id": "n1", "ok": True, "state": "removed"}))
    ran = hal("node", "remove", "n1")
    assert (ran.out, "if the agent there is started again" in ran.err) == ("n1 removed\n", True)
    assert server.asked[0].path == "/v1/nodes/remove"


def test_a_node_that_is_named_is_told_with_what_it_is_made_of(serve: Serve, hal: Hal) -> None:
    """Sizes as people write them; labels that HAL made are left out of the table only."""
    facts = {
        "system": "Debian 12",
        "kernel": "6.1",
        "cpu": {"model": "AMD EPYC", "sockets": 1, "cores": 2, "threads": 4},
        "memory_bytes": 8 << 30,
        "numa": [{"id": 0, "cpus": "0-3", "memory_bytes": 8 << 30}],
        "disks": [{"path": "/", "file_system": "ext4", "kind": "ssd", "size_bytes": 4 << 30, "free_bytes": 1 << 30}],
        "gpus": [{"index": 0, "model": "NVIDIA H200", "memory_bytes": 141 << 30, "uuid": "GPU-7", "numa": 0}],
        "domain": "dc1/rack3",
    }
    labels = {"disk": "fast", "hal.node": "n1"}
    serve(lambda asked: as_json({"name": "n1", "state": "up", "labels": labels, "facts": facts}))
    table, _, told = hal("nodes", "n1").out.partition("\n\n")
    assert "disk=fast" in table
    assert "hal.node" not in table
    assert [line.split(None, 1) for line in told.splitlines()] == [
        ["NODE", "n1"],
        ["system", "Debian 12, 6.1"],
        ["domain", "dc1/rack3"],
        ["cpu", "AMD EPYC, 1 socket, 2 cores, 4 threads"],
        ["memory", "8GiB"],
        ["NUMA", "0: cpus 0-3, 8GiB"],
        ["disks", "/ (ssd ext4) 1GiB free of 4GiB"],
        ["GPUs", "0: NVIDIA H200, 141GiB, NUMA 0, GPU-7"],
        ["labels", "disk=fast; hal.node=n1"],
    ]
