"""Prolog and epilog of a real agent and keeper, the test as their controller: programs, groups, deaths."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.runtime.identity import ProcessIdentity, identify, kill, wait_gone
from hal.wire.agree import GATES
from hal.wire.frames.agent_keeper import Refused, Stop, StopReason
from hal.wire.frames.controller_agent import Gates
from tests.daemons.agent.test_agent_process import DEADLINE_S, ONE, TWO, Node

SCRIPT = """#!/bin/sh
echo "$HAL_SCRIPT $HAL_JOB_ID" >> "$HAL_HOME/begun"
test -e "$HAL_HOME/hang-$HAL_SCRIPT" && { sleep 600 & echo $! > "$HAL_HOME/child"; echo $$ > "$HAL_HOME/main"; wait; }
test ! -e "$HAL_HOME/fail-$HAL_SCRIPT" || { echo looking; echo "no scratch"; exit 3; }
"""


class Gated(Node):
    """A node with scripts that hang or fail while a file says so."""

    def __init__(self, home: Path, timeout: str) -> None:
        home.mkdir(parents=True)
        script = home / "script"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        (home / "hal.toml").write_text(
            f'[node]\nprolog = ["{script}"]\nepilog = ["{script}"]\nprolog_timeout = "{timeout}"\n'
        )
        super().__init__(home, features=(GATES,))

    def said(self, gate: str) -> str:
        """Why that gate failed; '' when that was not told."""
        gates = [frame for frame in self.frames if isinstance(frame, Gates)]
        told = [one for frame in gates for one in frame.gates if one.gate == gate and one.reason]
        return told[-1].reason if told else ""

    def refusal(self, step: StepId) -> str:
        """The code with which it was refused."""
        refused = [frame for frame in self.frames if isinstance(frame, Refused)]
        found = [one.code for frame in refused for one in frame.steps if one.step == step]
        return found[-1] if found else ""

    @property
    def begun(self) -> list[str]:
        """Scripts, each with its job."""
        path = self.home.root / "begun"
        return path.read_text().splitlines() if path.exists() else []

    def hangs(self, gate: str) -> None:
        (self.home.root / f"hang-{gate}").touch()

    def goes_on(self, gate: str) -> None:
        (self.home.root / f"hang-{gate}").unlink()

    def hanging(self) -> list[ProcessIdentity]:
        """The script that hangs, and its child."""
        return [self.until(lambda: self._pid("child")), self.until(lambda: self._pid("main"))]

    def _pid(self, name: str) -> ProcessIdentity | None:
        path = self.home.root / name
        text = path.read_text().strip() if path.exists() else ""
        return identify(int(text)) if text else None


def gated(tmp_path: Path, timeout: str = "5m") -> Iterator[Gated]:
    node = Gated(tmp_path / "home", timeout)
    try:
        yield node
    finally:
        node.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Gated]:
    yield from gated(tmp_path)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Gated]:
    """Its prologs may take four seconds."""
    yield from gated(tmp_path, "4s")


def restart_agent(node: Gated) -> None:
    """SIGKILL; until its keeper's next one has dialled."""
    agent = node.until(node.agent)
    node.hellos.clear()
    node.stamp = 0
    kill(agent, signal.SIGKILL)
    node.until(lambda: node.hellos)


def gone(processes: list[ProcessIdentity]) -> bool:
    return all(wait_gone(one, DEADLINE_S) for one in processes)


@pytest.mark.slow
def test_a_failing_prolog_lets_no_process_begin(node: Gated, tmp_path: Path) -> None:
    """Its exit code and the last line that it wrote are told; the next job's passes."""
    failing = node.home.root / "fail-prolog"
    failing.touch()
    node.start(ONE, "touch", str(tmp_path / "ran"))
    assert node.until(lambda: node.refusal(ONE)) == "prolog-failed"
    assert node.said("prolog") == f"{node.home.root}/script: no scratch (exit code 3)"
    failing.unlink()
    node.start(TWO, "true")
    assert node.until(lambda: node.exits.get(TWO)).code == 0
    assert node.begun == ["prolog 1", "epilog 1", "prolog 2", "epilog 2"]
    assert not (tmp_path / "ran").exists()
    assert list(node.home.node("n1").gates.iterdir()) == []


@pytest.mark.slow
def test_a_prolog_that_takes_too_long_is_killed_with_its_group(hasty: Gated) -> None:
    """The program and what it had started."""
    hasty.hangs("prolog")
    hasty.start(ONE, "true")
    both = hasty.hanging()
    assert hasty.until(lambda: hasty.refusal(ONE)) == "prolog-failed"
    assert hasty.said("prolog") == f"{hasty.home.root}/script took longer than 4s"
    assert gone(both)


@pytest.mark.slow
def test_a_cancel_in_the_prolog_kills_it_and_runs_the_epilog(node: Gated) -> None:
    """The step never begins."""
    node.hangs("prolog")
    node.start(ONE, "true")
    both = node.hanging()
    node.send(Stop(epoch=3, steps=(ONE,), reason=StopReason.CANCELLED))
    assert node.until(lambda: node.refusal(ONE)) == "not-held"
    assert gone(both)
    assert node.begun == ["prolog 1", "epilog 1"]


@pytest.mark.slow
def test_what_a_killed_agent_left_of_a_prolog_is_ended_by_the_next(node: Gated) -> None:
    """Its group is killed, its epilog runs; asked again, the step has a prolog of its own."""
    node.hangs("prolog")
    node.start(ONE, "true")
    both = node.hanging()
    node.goes_on("prolog")
    restart_agent(node)
    assert gone(both)
    node.start(ONE, "true")
    assert node.until(lambda: node.exits.get(ONE)).code == 0
    assert node.begun == ["prolog 1", "epilog 1", "prolog 1", "epilog 1"]


@pytest.mark.slow
def test_an_epilog_whose_agent_was_killed_runs_again_before_the_exit_is_told(node: Gated) -> None:
    """What is left of the first is killed."""
    node.hangs("epilog")
    node.start(ONE, "sh", "-c", "exit 6")
    both = node.hanging()
    node.goes_on("epilog")
    assert node.exits == {}
    restart_agent(node)
    assert node.until(lambda: node.exits.get(ONE)).code == 6
    assert gone(both)
    assert node.begun == ["prolog 1", "epilog 1", "epilog 1"]
