"""`hal launch`: how ranks are distributed, what they get of the environment, what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from hal.cli.jobs.launch import node_called, parts_of, passed_variables, remote_shell
from hal.core.model import SpecError
from tests.cli.conftest import Ran

NODES = ("w1", "w2", "w3")


@pytest.mark.parametrize(
    ("most", "named", "ranks", "found"),
    [
        (None, (), None, [("w1", 0, 1), ("w2", 1, 1), ("w3", 2, 1)]),
        (None, (), 7, [("w1", 0, 3), ("w2", 3, 2), ("w3", 5, 2)]),
        (None, (), 2, [("w1", 0, 1), ("w2", 1, 1)]),
        (2, (), 4, [("w1", 0, 2), ("w2", 2, 2)]),
        (None, ("w3", "w2"), None, [("w2", 0, 1), ("w3", 1, 1)]),
    ],
)
def test_ranks_are_distributed_in_blocks(
    most: int | None, named: tuple[str, ...], ranks: int | None, found: list[tuple[str, int, int]]
) -> None:
    """In the order of the job's nodes; the first ones have one more."""
    parts = parts_of(NODES, most, named, ranks)
    assert [(part.node, part.first, part.ranks) for part in parts] == found
    assert {part.size for part in parts} == {sum(count for _, _, count in found)}
    assert [NODES[part.node_rank] for part in parts] == [part.node for part in parts]


@pytest.mark.parametrize(
    ("ranks", "per_node", "found"),
    [
        (7, None, [("w1", [0, 3, 6]), ("w2", [1, 4]), ("w3", [2, 5])]),
        (None, 2, [("w1", [0, 3]), ("w2", [1, 4]), ("w3", [2, 5])]),
        (2, None, [("w1", [0]), ("w2", [1])]),
    ],
)
def test_ranks_are_distributed_in_turn(
    ranks: int | None, per_node: int | None, found: list[tuple[str, list[int]]]
) -> None:
    parts = parts_of(NODES, None, (), ranks, per_node=per_node, cyclic=True)
    assert [(part.node, [part.first + at * part.stride for at in range(part.ranks)]) for part in parts] == found


@pytest.mark.parametrize("host", ["w2", "ann@w2", "10.0.0.2"])
def test_another_launcher_names_a_node_by_its_name_or_its_address(host: str) -> None:
    environ = {"HAL_NODE_ADDRESSES": "10.0.0.1,10.0.0.2,10.0.0.3"}
    assert node_called(host, NODES, environ) == "w2"


def test_another_launcher_gets_no_node_that_the_job_has_not() -> None:
    with pytest.raises(SpecError, match="the job has no node 'w9'"):
        node_called("w9", NODES, {})


def test_a_remote_shell_reads_its_words_and_has_no_rank() -> None:
    """As an rsh does: what is quoted twice is one word there."""
    words = remote_shell(["printf", "'%s,'", '"a b"', "$RANK", "c"])
    ran = subprocess.run(words, capture_output=True, text=True, env={"RANK": "3"})
    assert ran.stdout == "a b,c,"


@pytest.mark.parametrize(
    ("environ", "words", "lines"),
    [
        ({"HAL_CPUS": "2.5"}, (), ["w1 slots=2", "w2 slots=2"]),
        ({"HAL_CPUS": "8", "HAL_RANKS_PER_NODE": "3"}, (), ["w1 slots=3", "w2 slots=3"]),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "3"}, ("--form", "colon"), ["w1:2", "w2:1"]),
        ({}, ("-n", "3", "--form", "lines"), ["w1", "w1", "w2"]),
        ({}, ("-n", "1"), ["w1 slots=1"]),
    ],
)
def test_a_hostfile_says_how_many_ranks_a_node_has(
    environ: dict[str, str],
    words: tuple[str, ...],
    lines: list[str],
    hal: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"HAL_NODES": "w1,w2", **environ}.items():
        monkeypatch.setenv(name, value)
    assert hal("hostfile", *words).out.splitlines() == lines


@pytest.mark.parametrize(("most", "named", "says"), [(4, (), "4 are more"), (None, ("w9",), "no node 'w9'")])
def test_nodes_that_a_job_has_not_are_refused(most: int | None, named: tuple[str, ...], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        parts_of(NODES, most, named, None)


def test_ranks_get_the_variables_of_the_command_but_no_credentials() -> None:
    """Nor what is true of one node alone."""
    environ = {"A": "1", "PATH": "/x", "HAL_TOKEN": "s", "HAL_STEP_TOKEN": "s", "SLURM_NODEID": "0", "PBS_NP": "1"}
    environ |= {"HOME": "/h", "CUDA_VISIBLE_DEVICES": "0", "PWD": "/"}
    assert passed_variables(environ) == {"A": "1", "PATH": "/x"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["true"], "this runs in no job; begin one with hal alloc"),
        (["--job", "1"], "there is no command to run"),
        (["--job", "1", "-N", "1", "--node", "w1", "true"], "--nodes and --node cannot be combined"),
        (["--job", "1", "-n", "4", "--ranks-per-node", "2", "true"], "--ranks and --ranks-per-node cannot be"),
        (["--job", "1", "--rsh", "w1"], "write: hal launch --rsh NODE COMMAND"),
        (["--job", "1", "--rsh", "-n", "2", "w1", "true"], "--rsh runs one command on one node"),
    ],
)
def test_what_cannot_be_launched_is_refused(
    words: list[str], says: str, hal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HAL_JOB_ID", raising=False)
    ran = hal("launch", *words)
    assert (ran.code, says in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--signal", "USR2"], "there is no --follow whose changes it could tell"),
        (["--follow", "hosts", "--signal", "LOUD"], "there is no signal 'LOUD'"),
    ],
)
def test_a_signal_on_changes_needs_a_name_and_a_file_that_changes(
    words: list[str], says: str, hal: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAL_NODES", "w1")
    assert says in hal("hostfile", *words).err
