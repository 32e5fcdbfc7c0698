"""Nodes in columns: percents, totals, and what has changed."""

from __future__ import annotations

from msgspec.structs import replace

from hal.web.node_columns import NodeColumns, NodeUse, ResourceUse

STATES = ["up", "cordoned"]
USE = NodeUse(
    version="1",
    names=["a", "b", "c"],
    states=STATES,
    state=[0, 0, 1],
    running=[1, 0, 0],
    domains=["r1"],
    domain=[0, 0, -1],
    resources={
        "cpu": ResourceUse([4_000, 4_000, 2_000], [1_000, 4_000, 2_000]),
        "gpu": ResourceUse([0, 8_000, 0], [0, 2_000, 0]),
    },
)


def test_use_is_in_percent_and_a_node_without_a_resource_has_none() -> None:
    """a: 3 of 4 cpus = 75 %; b: 6 of 8 GPUs = 75 %; nobody has memory."""
    columns = NodeColumns()
    assert columns.update(USE) is None
    whole = columns.whole()
    assert (whole["c"], whole["g"], whole["m"]) == ([75, 0, 0], [-1, 75, -1], [-1, -1, -1])
    # c is closed and holds nothing: its 2 cpus are not counted. 3 of 8, 6 of 8.
    assert columns.totals() == {"cpu": (3_000, 8_000), "gpu": (6_000, 8_000)}
    assert columns.used_permille() == (375, -1, 750)


def test_only_what_changed_is_sent() -> None:
    """b takes two cpus: one position, all its columns. Nothing more: nothing."""
    columns = NodeColumns()
    columns.update(USE)
    newer = replace(
        USE,
        version="2",
        running=[1, 1, 0],
        resources=USE.resources | {"cpu": ResourceUse([4_000, 4_000, 2_000], [1_000, 2_000, 2_000])},
    )
    assert columns.update(newer) == {"i": [1], "s": [0], "r": [1], "c": [50], "m": [-1], "g": [75]}
    assert columns.update(replace(newer, version="3")) == {"i": [], "s": [], "r": [], "c": [], "m": [], "g": []}


def test_other_nodes_are_sent_as_a_whole() -> None:
    """One that has joined moves the positions of others."""
    columns = NodeColumns()
    columns.update(USE)
    assert columns.update(replace(USE, version="2", names=["a", "b", "d"])) is None
