"""Files of topologies: what they declare, and one error with file and line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.node_lists import fold_names
from hal.core.model.topology.tree import Topology, renamed, topology_of_labels
from tests.examples import examples

EXAMPLES = Path(__file__).parents[4] / "examples" / "topology"


def example(name: str) -> Topology:
    return topology_from_text((EXAMPLES / name).read_text(), name)


def test_hal_s_own_file_gives_the_path_of_each_node() -> None:
    """Names of domains are paths: the r1 of one zone is not the r1 of the other."""
    site = example("site.toml")
    assert site.levels == ("zone", "rack", "switch")
    assert site.domains_of("n010", {}) == ("east", "east/r1", "east/r1/s2")
    assert site.domains_of("gpu4", {}) == ("west", "west/r1", "")
    assert site.domains_of("elsewhere", {}) == ("", "", "")


def test_a_level_of_a_path_may_be_left_empty() -> None:
    """Such a switch is in a zone and in no rack."""
    found = topology_from_text('levels = ["zone", "rack", "switch"]\n[nodes]\nn1 = "a//s1"\nn2 = "/r2"', "t.toml")
    assert found.domains_of("n1", {}) == ("a", "", "a//s1")
    assert found.domains_of("n2", {}) == ("", "/r2", "")


def test_slurm_s_switches_are_levels_by_their_height() -> None:
    """Leaves are `switch`, as they are Slurm's level 0."""
    tree = example("topology.conf")
    assert tree.levels == ("switch-2", "switch-1", "switch")
    assert tree.domains_of("n100", {}) == ("core", "spine2", "leaf7")
    assert len(tree.domains) == 11


def test_a_leaf_switch_beside_wider_ones_is_a_leaf_all_the_same() -> None:
    """Slurm allows trees that are deeper on one side."""
    text = "SwitchName=top Switches=mid,l3\nSwitchName=mid Switches=l[1-2]\n"
    text += "".join(f"SwitchName=l{number} Nodes=n{number}\n" for number in (1, 2, 3))
    tree = topology_from_text(text, "topology.conf")
    assert tree.domains_of("n2", {}) == ("top", "mid", "l2")
    assert tree.domains_of("n3", {}) == ("top", "", "l3")


def test_neighbouring_blocks_make_the_wider_ones() -> None:
    """In the order of the file, as many as their size says."""
    blocks = example("blocks.conf")
    assert blocks.levels == ("block-72", "block-36", "block")
    assert blocks.domains_of("n40", {}) == ("b[1-4]", "b[3-4]", "b3")


def test_a_last_block_without_neighbour_is_a_wider_one_alone() -> None:
    """Its name differs from that of the block."""
    text = "BlockSizes=2,4\n" + "".join(f"BlockName=b{n} Nodes=n{n}[1-2]\n" for n in (1, 2, 3))
    assert topology_from_text(text, "t.conf").domains_of("n31", {}) == ("b3-4", "b3")


def test_of_a_yaml_the_default_of_the_cluster_is_read() -> None:
    """The others are only looked through."""
    assert example("topology.yaml").domains_of("n17", {}) == ("core", "leaf2")


def test_slurm_s_words_may_be_small_and_lines_continued() -> None:
    """As its own reader takes them."""
    text = 'switchname=s1 \\\n  NODES="n[1-2]"  # a comment\n\nSWITCHNAME=s2 Nodes=n3 LinkSpeed=400'
    assert topology_from_text(text, "t.conf").domains_of("n2", {}) == ("s1",)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("t.conf", "SwitchName=a Switches=b\nSwitchName=b Switches=a", "t.conf:1: switches are below themselves"),
        (
            "t.conf",
            "SwitchName=a Nodes=n[1-4]\n\nSwitchName=b Nodes=n4",
            "t.conf:3: node 'n4' is in 'b' and in 'a' (line 1)",
        ),
        ("t.conf", "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t.conf:2: switch 'a' is declared twice"),
        ("t.conf", "SwitchName=a Switches=b", "t.conf:1: switch 'b' under 'a' is not declared"),
        (
            "t.conf",
            "SwitchName=c Nodes=n1\nSwitchName=a Switches=c\nSwitchName=b Switches=c",
            "t.conf:3: switch 'c' is under",
        ),
        ("t.conf", "SwitchName=a", "t.conf:1: switch 'a' has neither"),
        ("t.conf", "SwitchName=a Nodes=n1 Switches=b", "t.conf:1: switch 'a' has nodes and switches"),
        ("t.conf", "SwitchName=a[1-2] Nodes=n1", "t.conf:1: 'a[1-2]' is not the name of a switch"),
        ("t.conf", "#\nSwichName=a Nodes=n1", "t.conf:2: unknown key 'SwichName' (did you mean 'SwitchName'?)"),
        ("t.conf", "SwitchName=a Node=n1", "t.conf:1: unknown key 'Node' (did you mean 'Nodes'?)"),
        ("t.conf", "SwitchName=a Nodes=n1 Nodes=n2", "t.conf:1: 'Nodes' is twice"),
        ("t.conf", "SwitchName=a Nodes=n[1", "t.conf:1: nodes of 'a': 'n[1': brackets"),
        ("t.conf", "SwitchName a", "t.conf:1: 'SwitchName' is not KEY=VALUE"),
        ("t.conf", "Include other.conf", "the lines of another file are not read"),
        ("t.conf", "RingName=a Nodes=n1", "rings are not read"),
        ("t.conf", "", "t.conf: it declares no domain"),
        ("t.conf", "SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "t.conf:2: switches and blocks"),
        ("t.conf", "BlockName=b Nodes=n1\nBlockName=b Nodes=n2", "t.conf:2: block 'b' is declared twice"),
        (
            "t.conf",
            "BlockName=b Nodes=n[1-3]\nBlockSizes=4",
            "t.conf:1: block 'b' has 3 nodes, fewer than the base size 4",
        ),
        ("t.conf", "BlockName=b Nodes=n[1-4]\nBlockSizes=4,12", "t.conf:2: block size 12 does not follow from 4"),
        ("t.conf", "BlockName=b Nodes=n[1-4]\nBlockSizes=4,4", "t.conf:2: block size 4 does not follow"),
        ("t.conf", "BlockSizes=4\nBlockSizes=8", "t.conf:2: the block sizes are given twice"),
        ("t.conf", "BlockName=b Nodes=n1\nBlockSizes=x", "t.conf:2: BlockSizes: 'x'"),
        ("t.conf", "BlockName=b", "t.conf:1: block 'b' has no nodes"),
        (
            "t.yaml",
            "- topology: a\n  tree:\n    switches:\n    - switch: s\n      node: n1",
            "t.yaml:5: unknown key 'node'",
        ),
        (
            "t.yaml",
            "- tree: {switches: [{switch: s, nodes: [n1]}]}",
            "t.yaml:1: nodes of 's': ['n1'] is not a list of names",
        ),
        ("t.yaml", "- flat: true\n- flat: true", "none of 2 topologies is the default"),
        ("t.yaml", "- topology: a\n  flat: true", "t.yaml:1: the topology is flat"),
        ("t.yaml", "- topology: a\n  ring: {}", "t.yaml:1: the topology is ring"),
        ("t.yaml", "- topology: a\n  flat: true\n  tree: {}", "t.yaml:1: topology 'a' has tree and flat"),
        ("t.yaml", "- topology: a", "t.yaml:1: topology 'a' has no kind"),
        ("t.yaml", "- block: {block_sizes: 4, blocks: [{block: b, nodes: n1}]}", "block_sizes: 4 is not a list"),
        ("t.yaml", "- tree: {switches: []}", "switches: [] is not a list with entries"),
        ("t.yaml", "tree: {}", "is not a list with entries"),
        ("t.yaml", "- [", "t.yaml: not YAML"),
        (
            "t.toml",
            'levels = ["a"]\n[nodes]\n"n1" = "x"\n"n[1-2]" = "y"',
            "t.toml:4: node 'n1' is in 'y' and in 'x' (line 3)",
        ),
        ("t.toml", 'levls = ["a"]', "t.toml:1: unknown key 'levls' (did you mean 'levels'?)"),
        ("t.toml", 'levels = ["a"]\n[nodes]\nn1 = "x/y"', "t.toml:3: 'x/y' has 2 domains for 1 levels"),
        ("t.toml", 'levels = ["a"]\n[nodes]\nn1 = ""', "t.toml:3: 'n1'"),
        ("t.toml", 'levels = ["a"]\n[nodes]\nn1 = "a b"', "t.toml:3: 'a b'"),
        ("t.toml", 'levels = ["a"]\n[nodes]\nn1.org = "x"', "write names with dots in quotes"),
        ("t.toml", 'levels = ["a", "a"]', "t.toml:1: levels: 'a' is there twice"),
        ("t.toml", 'levels = ["node"]', "t.toml:1: levels: 'node' is what all nodes are"),
        ("t.toml", 'levels = ["a:b"]', "t.toml:1: levels: 'a:b' is not a name"),
        ("t.toml", f"levels = {[f'l{n}' for n in range(17)]}", "t.toml:1: levels: 17 levels (at most 16)"),
        ("t.toml", "[nodes]\nn1 = 'x'", "levels: it names none"),
        ("t.toml", "levels = ['a']", "t.toml:1: it declares no domain"),
        ("t.toml", "levels = [", "t.toml: not TOML"),
        ("t.txt", "", "t.txt: not a file of a topology by its name"),
    ],
)
def test_a_mistake_is_one_error_that_says_where(file: str, text: str, says: str) -> None:
    """File and line come first."""
    with pytest.raises(SpecError) as error:
        topology_from_text(text, file)
    assert says in str(error.value)


def test_seventeen_levels_of_switches_are_too_many() -> None:
    """A chain of them."""
    chain = "".join(f"SwitchName=s{n} Switches=s{n - 1}\n" for n in range(1, 17))
    with pytest.raises(SpecError, match="17 levels of switches"):
        topology_from_text(f"SwitchName=s0 Nodes=n1\n{chain}", "t.conf")


def test_labels_say_where_nodes_are() -> None:
    """A rack has its zone in its name, unless its label has the whole path."""
    found = topology_of_labels(["zone", "rack"], "levels")
    assert found.domains_of("n1", {"zone": "a", "rack": "r1"}) == ("a", "a/r1")
    assert found.domains_of("n1", {"zone": "a", "rack": "a/r1"}) == ("a", "a/r1")
    assert found.domains_of("n1", {"rack": "r1"}) == ("", "/r1")
    assert found.domains_of("n1", {}) == ("", "")


def test_levels_of_a_file_can_have_other_names() -> None:
    """As many as it has."""
    tree = renamed(example("topology.conf"), ["site", "row", "rack"], "topology.levels")
    assert (tree.levels, tree.domains_of("n001", {})) == (("site", "row", "rack"), ("core", "spine1", "leaf1"))
    with pytest.raises(SpecError, match="2 names for 3 levels"):
        renamed(tree, ["row", "rack"], "topology.levels")


SWITCHES = st.lists(st.integers(1, 4), min_size=1, max_size=3)
TREES = st.lists(st.lists(SWITCHES, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=examples(60))
@given(TREES)
def test_all_formats_declare_one_tree(sizes: list[list[list[int]]]) -> None:
    """A tree of zones, racks and switches with so many nodes each, written in each format: nodes that share a domain of
    a level in one share it in all."""
    own, conf, yaml = [], [], []
    number = 0

    def switch(name: str, key: str, value: str) -> None:
        conf.append(f"SwitchName={name} {'Nodes' if key == 'nodes' else 'Switches'}={value}")
        yaml.append(f"    - switch: {name}\n      {key}: '{value}'")

    for z, racks in enumerate(sizes):
        switch(f"z{z}", "children", fold_names(f"r{z}x{r}" for r in range(len(racks))))
        for r, switches in enumerate(racks):
            switch(f"r{z}x{r}", "children", fold_names(f"s{z}x{r}x{s}" for s in range(len(switches))))
            for s, count in enumerate(switches):
                nodes = fold_names(f"n{at}" for at in range(number, number + count))
                own.append(f'"{nodes}" = "z{z}/r{r}/s{s}"')
                switch(f"s{z}x{r}x{s}", "nodes", nodes)
                number += count
    first = topology_from_text('levels = ["zone", "rack", "switch"]\n[nodes]\n' + "\n".join(own), "t.toml")
    others = (
        topology_from_text("\n".join(conf), "t.conf"),
        topology_from_text("- topology: t\n  tree:\n    switches:\n" + "\n".join(yaml), "t.yaml"),
    )
    for other in others:
        pairs = [
            {(first.domains_of(f"n{at}", {})[level], other.domains_of(f"n{at}", {})[level]) for at in range(number)}
            for level in range(3)
        ]
        for found in pairs:
            assert len({one for one, _ in found}) == len({two for _, two in found}) == len(found)
