"""How `hal up` shares a machine among its nodes, and what it says before anything is started."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.cli.local.layout import (
    MIB,
    Layout,
    NodePlan,
    cores_here,
    host_node_name,
    memory_here_bytes,
    plan_nodes,
    saved_layout,
)
from hal.core.model import InternalError, SpecError
from hal.core.model.facts import GpuFacts, SliceFacts
from hal.runtime.home import Home
from tests.cli.conftest import Ran

Hal = Callable[..., Ran]


def test_nodes_share_cores_and_memory_equally() -> None:
    """Each gets at least one core, and whole MiB of memory; together no more memory than there is."""
    count = 3
    plans = plan_nodes(count)
    assert [plan.name for plan in plans] == ["n1", "n2", "n3"]
    assert {plan.cpu_milli for plan in plans} == {max(1, len(os.sched_getaffinity(0)) // count) * 1000}
    assert sum(plan.memory_bytes for plan in plans) <= memory_here_bytes()
    assert all(plan.memory_bytes % MIB == 0 for plan in plans)


def test_one_node_is_the_whole_machine() -> None:
    """All cores that this process may use, under the name of the host."""
    (plan,) = plan_nodes(1)
    assert (plan.name, plan.cpu_milli) == (host_node_name(), cores_here() * 1000)


@pytest.mark.parametrize(
    ("host", "name"),
    [("gpu-7.example.org", "gpu-7"), ("my_laptop", "my-laptop"), ("-", "node"), ("x" * 64, "x" * 63), ("…", "node")],
)
def test_a_node_is_named_after_its_host(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    """Without its domain and what a node's name cannot have."""
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert host_node_name() == name


def test_what_is_said_wins_over_the_share() -> None:
    """Also where that is more than the machine has: steps share its cores then."""
    plans = plan_nodes(2, name="gpu", cpu_milli=500, memory_bytes=64 * MIB, resources={"gpu": 2000}, labels={"a": "b"})
    assert plans[1] == NodePlan(
        name="gpu2", cpu_milli=500, memory_bytes=64 * MIB, resources={"gpu": 2000}, labels={"a": "b"}
    )
    assert plans[1].keeper_arguments() == [
        *("--node", "gpu2", "--cpu-milli", "500", "--memory", str(64 * MIB)),
        *("--resource", "gpu=2000", "--label", "a=b"),
    ]


def test_nodes_of_one_machine_share_whole_gpus_and_those_in_mig_mode() -> None:
    """Four whole ones and two of two slices: half of each. With `--gpus` slices are not offered."""
    slices = tuple(SliceFacts(type="1g.10gb", uuid=f"MIG-{at}") for at in range(2))
    declared = tuple(GpuFacts(index=at, mig=at in (1, 4), slices=slices if at in (1, 4) else ()) for at in range(6))
    plans = plan_nodes(2, cpu_milli=500, memory_bytes=64 * MIB, declared=declared)
    assert [plan.gpus for plan in plans] == [(0, 2, 1), (3, 5, 4)]
    assert [dict(plan.resources) for plan in plans] == [{"gpu": 2_000, "mig-1g.10gb": 2}] * 2
    (plan,) = plan_nodes(1, cpu_milli=500, memory_bytes=64 * MIB, declared=declared, resources={"gpu": 1_000})
    assert (plan.gpus, dict(plan.resources)) == ((0,), {"gpu": 1_000})
    sliced = plan_nodes(1, cpu_milli=500, memory_bytes=64 * MIB, declared=(declared[1],))
    assert dict(sliced[0].resources) == {"mig-1g.10gb": 2}


def test_a_controller_may_have_no_node() -> None:
    """`hal up --nodes 0`."""
    assert plan_nodes(0) == ()


@pytest.mark.parametrize(("count", "name"), [(-1, None), (65, None), (1, "../x"), (2, "-"), (1, "x" * 64)])
def test_a_number_or_name_that_cannot_be_is_refused(count: int, name: str | None) -> None:
    """Before anything is started."""
    with pytest.raises(SpecError):
        plan_nodes(count, name=name)


def test_the_layout_is_kept_for_the_next_start(hal_home: Path) -> None:
    """A damaged file is an error that says what to do, never another layout."""
    home = Home(hal_home)
    home.create()
    assert saved_layout(home) is None
    layout = Layout(nodes=plan_nodes(2), tcp="127.0.0.1:4250")
    layout.save(home)
    assert saved_layout(home) == layout
    (home.run_dir / "layout.json").write_text("{")
    with pytest.raises(InternalError, match="is damaged"):
        saved_layout(home)


def test_down_and_status_where_nothing_was_ever_started(hal: Hal, hal_home: Path) -> None:
    """Neither makes anything there."""
    assert hal("down") == (0, "", f"HAL at {hal_home} was not running\n")
    status = hal("status")
    assert status.code == 5
    assert "hal up" in status.out
    assert list(hal_home.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--nodes", "-1"), "--nodes -1: "),
        (("--nodes", "0", "--cpus", "1"), "--nodes 0 starts no node"),
        (("--cpus", "0"), "a node needs some of both"),
        (("--cpus", "many"), "--cpus: 'many'"),
        (("--memory", "much"), "--memory: 'much' is not a size"),
        (("--tcp", "0"), "--tcp: '0' is not [HOST:]PORT"),
        (("--tcp", ":4250"), "is not [HOST:]PORT"),
        (("--label", "x"), "--label: 'x' is not NAME=VALUE"),
        (("--url", "http://h:1"), "HAL can be started only on this machine"),
    ],
)
def test_bad_options_of_up_start_nothing(args: tuple[str, ...], message: str, hal: Hal) -> None:
    """Exit code 2."""
    ran = hal("up", *args)
    assert ran.code == 2
    assert message in ran.err


def test_leave_and_kill_exclude_each_other(hal: Hal) -> None:
    """Exit code 2."""
    assert hal("down", "--leave", "--kill").code == 2
