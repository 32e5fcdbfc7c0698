"""The demo runs from beginning to end, and cleans up after itself when it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
DEMO: Final = ROOT / "examples" / "demo" / "demo.py"
LIMIT_S: Final = 240.0


def start_demo(directory: Path) -> subprocess.Popen[str]:
    """The demo in a directory of its own, so that its pictures and its HAL_HOME lie there."""
    homes = directory / "tmp"
    homes.mkdir()
    return subprocess.Popen(
        [sys.executable, str(DEMO)],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(homes), "NO_COLOR": "1", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_the_demo_runs_and_leaves_only_its_pictures(tmp_path: Path) -> None:
    """Every job of the workflow ends as it should, the replay is drawn, and the private HAL_HOME is gone."""
    with start_demo(tmp_path) as demo:
        output, _ = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, output
    assert {path.name for path in (tmp_path / "out" / "demo").iterdir()} >= {
        "workflow.svg",
        "workflow.png",
        "replay.svg",
    }
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("line", ["1. Start HAL", "2. Run a workflow"])
def test_an_interrupted_demo_cleans_up(tmp_path: Path, line: str) -> None:
    """Ctrl-C while HAL starts or while jobs run: HAL is stopped, its directory removed, the exit code is 130."""
    with start_demo(tmp_path) as demo:
        assert demo.stdout is not None
        shown = ""
        while line not in shown:
            read = demo.stdout.readline()
            assert read, shown
            shown += read
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 130, shown + rest
    assert list((tmp_path / "tmp").iterdir()) == []
