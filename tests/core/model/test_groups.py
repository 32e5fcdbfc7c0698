"""Groups of nodes in a job spec: what the job then asks for in all, and which combinations are refused."""

from __future__ import annotations

from typing import Any

import pytest

from hal.cli.jobs.job_options import group_from
from hal.core.model import JobSpec, SpecError, spec_from_plain, to_json
from hal.core.model.codec import from_json
from hal.core.model.groups import group_of, nodes_of_group, total_request

GROUPS: list[dict[str, Any]] = [
    {"name": "driver", "request": {"cpu": 2}},
    {"name": "gpu", "nodes": 3, "request": {"cpu": "8", "gpu": 4}, "constraints": ["kind=a100"]},
]


def spec(**fields: Any) -> JobSpec:
    """A job with these groups."""
    return spec_from_plain({"command": ["true"], "groups": GROUPS, **fields})


def test_a_job_has_the_nodes_of_all_groups_and_the_request_of_the_first() -> None:
    """1 + 3 nodes; 2 + 3 x 8 cores in all."""
    found = spec()
    assert (found.nodes, dict(found.request)) == (4, {"cpu": 2000})
    assert dict(total_request(found)) == {"cpu": 26_000, "gpu": 12_000}
    assert [group_of(found.groups, rank) for rank in range(4)] == [0, 1, 1, 1]


def test_a_spec_with_groups_is_the_same_after_it_was_stored() -> None:
    """As JSON and back."""
    found = spec()
    assert from_json(to_json(found), JobSpec) == found


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"array": 2}, "`array`"),
        ({"extensions": 2}, "`extensions`"),
        ({"service": True}, "`service`"),
        ({"exclusive": True}, "`exclusive`"),
        ({"nodes": 3}, "nodes: 3 beside groups, which have 4"),
        ({"request": {"cpu": 1}}, "request: beside groups"),
        ({"groups": GROUPS[:1]}, "only one"),
        ({"groups": [GROUPS[0], GROUPS[0]]}, "'driver' is there twice"),
        ({"groups": [*GROUPS, {"name": "a b"}]}, "'a b' is not a name"),
        ({"groups": [*GROUPS, {"name": "big", "nodes": 100_000}]}, "100004 nodes in all"),
        ({"groups": [{"name": f"g{at}"} for at in range(9)]}, "9; at most 8"),
        ({"groups": [GROUPS[0], {**GROUPS[1], "command": ["x"]}], "first_node": True}, "on the first node alone"),
        ({"groups": [GROUPS[0], {"name": "x", "request": {"cpu": 0}}]}, "no resource is given"),
        ({"ranks_per_node": 2}, "first_node"),
    ],
)
def test_what_contradicts_groups_is_refused(fields: dict[str, Any], message: str) -> None:
    """Each names the field."""
    with pytest.raises(SpecError) as error:
        spec(**fields)
    assert message in f"{error.value} {error.value.hint}"


def test_the_option_reads_fields_and_a_command_to_its_end() -> None:
    """The command may have commas."""
    assert group_from("name=gpu,nodes=4,gpus=a100:8,constraint=ssd,command=./a x,y=1") == {
        "name": "gpu", "nodes": 4, "gpus": "a100:8", "constraints": ["ssd"], "command": "./a x,y=1",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["gpu", "name=x,size=3", "name=x,nodes=none", "name=xcommand=y"])
def test_the_option_refuses_what_is_no_field(text: str) -> None:
    """And says which fields there are."""
    with pytest.raises(Exception, match="--group: "):
        group_from(text)


def test_nodes_of_a_group_follow_from_all_that_are_before_it() -> None:
    """And a name that is not there is refused with those that are."""
    assert nodes_of_group("gpu", "driver:1,gpu:3") == range(1, 4)
    with pytest.raises(SpecError, match="no group 'x'"):
        nodes_of_group("x", "driver:1,gpu:3")
