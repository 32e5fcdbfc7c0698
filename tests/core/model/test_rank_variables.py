"""Variables of ranks: numbers, where rank 0 is, Slurm's names."""

from __future__ import annotations

import pytest

from hal.core.model.rank_variables import hostfile, variables_of_rank

STEP = {
    "HAL_NODES": "w1,w2,w3",
    "HAL_NODE_ADDRESSES": "10.0.0.1,10.0.0.2,10.0.0.3",
    "HAL_NODE_RANK": "1",
    "HAL_NODE": "w2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "18000",
}


def test_a_rank_has_its_numbers_under_both_names() -> None:
    found = variables_of_rank(5, 8, 1, 4, step={}, passed={})
    assert [found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == ["5", "8", "1", "4"]
    assert [found[f"HAL_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")] == ["5", "8", "1", "4"]
    assert len(found) == 8


@pytest.mark.parametrize(
    ("passed", "address", "port"),
    [
        ({"HAL_LAUNCH_NODES": "w1,w2,w3"}, "10.0.0.1", "18000"),
        ({"HAL_LAUNCH_NODES": "w2,w3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "18000"}, "10.0.0.2", "18000"),
        ({"HAL_LAUNCH_NODES": "w2,w3", "MASTER_ADDR": "ib1", "MASTER_PORT": "29500"}, "ib1", "29500"),
    ],
)
def test_rank_0_is_on_the_first_node_of_the_launch_unless_somebody_says_otherwise(
    passed: dict[str, str], address: str, port: str
) -> None:
    """A job may launch on its second and third node."""
    found = STEP | passed | variables_of_rank(0, 2, 0, 1, step=STEP, passed=passed)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (address, port)
    assert found["JAX_COORDINATOR_ADDRESS"] == f"{address}:{port}"


def test_an_address_with_colons_is_bracketed_before_a_port() -> None:
    step = {"HAL_NODES": "w1", "HAL_NODE_ADDRESSES": "fd00::1", "MASTER_PORT": "18000"}
    found = variables_of_rank(0, 1, 0, 1, step=step, passed={"HAL_LAUNCH_NODES": "w1"})
    assert (found["MASTER_ADDR"], found["JAX_COORDINATOR_ADDRESS"]) == ("fd00::1", "[fd00::1]:18000")


def test_slurms_names_are_set_for_jobs_that_have_slurms_job_id() -> None:
    found = variables_of_rank(1, 2, 0, 1, step=STEP, passed={"SLURM_JOB_ID": "7", "HAL_LAUNCH_NODES": "w1,w2"})
    assert {name: value for name, value in found.items() if name.startswith("SLURM")} == {
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "w1,w2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NODEID": "1",
        "SLURMD_NODENAME": "w2",
    }


@pytest.mark.parametrize(
    ("form", "lines"), [("slots", ["a slots=2", "c slots=1"]), ("colon", ["a:2", "c:1"]), ("lines", ["a", "a", "c"])]
)
def test_a_hostfile_leaves_out_nodes_without_ranks(form: str, lines: list[str]) -> None:
    assert hostfile(["a", "b", "c"], [2, 0, 1], form) == lines
