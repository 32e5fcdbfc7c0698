"""The record of decisions: the same decisions give the same line, another decision another line, which is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.decisions import ROOT, Recorder, compare

from hal.core.engine import cycle
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import NodeSpec
from tests.core.engine.clusters import engine, job


def recorded(*cpus: int) -> str:
    """The line of one pass over jobs of so many cpus, on one node of four."""
    state, _, scheduler = engine(EngineConfig(), NodeSpec("n1", {"cpu": 4}))
    for number, cpu in enumerate(cpus, start=1):
        scheduler.feed(job(number, cpu))
    recorder = Recorder()
    recorder.wrap(cycle)(state, 0)
    return recorder.line("pass")


def test_the_same_decisions_have_the_same_line() -> None:
    """Two engines that were told the same."""
    assert recorded(2, 2) == recorded(2, 2)


def test_another_decision_has_another_line() -> None:
    """The second job does not fit beside the first: it gets a reservation instead of a start."""
    assert recorded(2, 3) != recorded(2, 2)


def test_inputs_that_differ_or_are_missing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the exit status is 1; of equal records it is 0."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("a 1 aa\nb 1 bb\nc 1 cc\n")
    after.write_text("a 1 aa\nb 1 xx\n")
    assert (compare(before, before), compare(before, after)) == (0, 1)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["b", "c"]


@pytest.mark.slow
def test_kernels_decide_the_same_as_plain_python(tmp_path: Path) -> None:
    """A controller that is not compiled yet lets them run as such."""
    compiled, plain = tmp_path / "compiled", tmp_path / "plain"
    for into, variables in ((compiled, {}), (plain, {"NUMBA_DISABLE_JIT": "1"})):
        command = [sys.executable, "tools/decisions.py", "record", str(into), "--seeds", "2", "--sites-only"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True, timeout=600)
    assert compare(compiled, plain) == 0
    assert plain.read_text().count("\n") == 4
