"""`hal topology`: the tree that it draws, and files that it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hal.cli.kit.tables import fitted
from hal.cli.nodes.topology import COLUMNS, _tree_names
from hal.client.rest.topology_calls import DomainInfo
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]
EXAMPLES = Path(__file__).parents[3] / "examples" / "topology"


def domain(name: str, level: str, depth: int, parent: str = "", **more: Any) -> dict[str, Any]:
    """One of a topology, with 8 cpus of which 2 are free."""
    use = {"nodes": 2, "up": 1, "idle": 1, "jobs": 3, "capacity": {"cpu": 8_000}, "free": {"cpu": 2_000}}
    return {"name": name, "level": level, "depth": depth, "parent": parent, "members": "", **use, **more}


def answering(**fields: Any) -> Callable[[Asked], Reply]:
    """A topology of a zone with two racks, and one without."""
    found = {
        "levels": ["zone", "rack"],
        "domains": [
            domain("east", "zone", 0),
            domain("east/r1", "rack", 1, "east", members="n[1-2]"),
            domain("east/r2", "rack", 1, "east", members="n3"),
            domain("west", "zone", 0),
        ],
        "outside": 0,
        "missing": 0,
        **fields,
    }
    return lambda asked: as_json(found)


def test_domains_are_drawn_as_a_tree_with_their_use(serve: Serve, hal: Hal) -> None:
    """Names without the path above them; no GPUs are a dash."""
    server = serve(answering())
    ran = hal("topology")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["DOMAIN", "LEVEL", "UP", "IDLE", "CPU", "MEMORY", "GPU", "JOBS", "NODES"],
        ["east", "zone", "1/2", "1", "6/8", "-", "-", "3"],
        ["├─", "r1", "rack", "1/2", "1", "6/8", "-", "-", "3", "n[1-2]"],
        ["└─", "r2", "rack", "1/2", "1", "6/8", "-", "-", "3", "n3"],
        ["west", "zone", "1/2", "1", "6/8", "-", "-", "3"],
    ]
    assert (ran.code, ran.err, server.asked[0].path) == (0, "", "/v1/topology")


def test_one_level_has_whole_names(serve: Serve, hal: Hal) -> None:
    """As they are written in a file."""
    serve(answering())
    ran = hal("topology", "--level", "rack")
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["east/r1", "east/r2"]
    assert [one["name"] for one in json.loads(hal("topology", "--level", "rack", "--json").out)["domains"]] == [
        "east/r1",
        "east/r2",
    ]


def test_a_level_that_does_not_exist_is_an_error(serve: Serve, hal: Hal) -> None:
    """With those that do."""
    serve(answering())
    ran = hal("topology", "--level", "row")
    assert (ran.code, ran.err) == (2, "error: there is no level 'row'\nhint: levels are zone, rack\n")


def test_nodes_that_are_nowhere_are_noted(serve: Serve, hal: Hal) -> None:
    """And names in the file without a node."""
    serve(answering(outside=1, outside_nodes="x", missing=3, missing_nodes="n[7-9]"))
    ran = hal("topology")
    assert ran.err == "in no domain: 1 node, x\nin the topology, and not here: 3 nodes, n[7-9]\n"


def test_without_a_topology_it_says_where_to_declare_one(serve: Serve, hal: Hal) -> None:
    """That is no error."""
    serve(answering(levels=[], domains=[]))
    ran = hal("topology")
    assert (ran.code, ran.out, "[topology] in hal.toml" in ran.err) == (0, "", True)


def test_branches_of_a_deep_tree_end_where_nothing_follows() -> None:
    """Bars go on past what is within a domain that has another after it."""
    tree = [("a", 0), ("b", 1), ("c", 2), ("d", 2), ("e", 1), ("f", 2), ("g", 0), ("h", 1)]
    found = _tree_names([DomainInfo(name=name, level="x", depth=depth) for name, depth in tree])
    assert found == ["a", "├─ b", "│  ├─ c", "│  └─ d", "└─ e", "   └─ f", "g", "└─ h"]


def test_a_narrow_terminal_keeps_what_is_free() -> None:
    """Of 64 columns' width, the lists of nodes and the jobs go first; of 50, also the levels and the idle nodes."""
    row = ("│  └─ switch-2", "switch", "198/200", "3", "512/640", "4TiB/5TiB", "28/32", "120", "n[001-016,018-032]")
    left = {width: [COLUMNS[at] for at in fitted(COLUMNS, [row], width)] for width in (64, 50)}
    assert left == {
        64: ["DOMAIN", "LEVEL", "UP", "IDLE", "CPU", "MEMORY", "GPU"],
        50: ["DOMAIN", "UP", "CPU", "MEMORY", "GPU"],
    }


def test_a_file_is_read_without_a_running_hal(hal: Hal) -> None:
    """Levels, with their domains and the nodes in them."""
    file = EXAMPLES / "site.toml"
    ran = hal("topology", "check", file)
    assert [line.split() for line in ran.out.splitlines()] == [
        ["LEVEL", "DOMAINS", "NODES"],
        ["zone", "2", "36"],
        ["rack", "3", "36"],
        ["switch", "4", "32"],
    ]
    assert (ran.code, ran.err) == (0, f"{file}: no mistakes; 36 nodes\n")


def test_files_of_slurm_are_read_as_they_are(hal: Hal) -> None:
    """A tree, blocks, and the newer file."""
    levels = {
        name: {
            one["level"]: one["domains"]
            for one in json.loads(hal("topology", "check", EXAMPLES / name, "--json").out)["levels"]
        }
        for name in ("topology.conf", "blocks.conf", "topology.yaml")
    }
    assert levels == {
        "topology.conf": {"switch-2": 1, "switch-1": 2, "switch": 8},
        "blocks.conf": {"block-72": 1, "block-36": 2, "block": 4},
        "topology.yaml": {"switch-1": 1, "switch": 2},
    }


def test_a_mistake_in_a_file_is_named_with_its_line(hal: Hal, tmp_path: Path) -> None:
    """Exit code 2."""
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n4\n")
    ran = hal("topology", "check", file)
    assert ran.code == 2
    assert f"error: {file}:2: node 'n4' is in 's2' and in 's1' (line 1)\n" in ran.err
    assert "No such file" in hal("topology", "check", tmp_path / "none.conf").err
