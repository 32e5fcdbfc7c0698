"""What docs/cluster.md shows is run as it stands there, on two machines."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cluster.hosts import DEADLINE_S, Host, Network

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def run(host: Host, script: str, directory: Path) -> str:
    """Run a block of the page on a host; what it printed."""
    path = f"{directory / 'bin'}:{host.environment['PATH']}"
    process = host.start("sh", "-c", f"cd {directory}; PATH={path}; {script}")
    out, err = process.communicate(timeout=3 * DEADLINE_S)
    assert process.returncode == 0, f"{script}\n{out}\n{err}"
    return out


def test_two_machines_in_five_commands(tmp_path: Path) -> None:
    """The token is passed on by a file that both see; a job of two nodes then runs on both machines."""
    (tmp_path / "bin").mkdir()
    hal = tmp_path / "bin" / "hal"
    hal.write_text(f'#!/bin/sh\nexec {sys.executable} -m hal.cli.main "$@"\n')
    hal.chmod(0o755)
    blocks = re.findall(r"^```sh\n(set -e  # on (.*?)\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    with Network() as network:
        head, other = network.host("head"), network.host("other")
        printed = [run(head if where == "head" else other, script, tmp_path) for script, where in blocks]
    assert len(blocks) == 3
    assert re.search(r"^other +up ", printed[-1], re.MULTILINE)
    assert {line.split()[-1] for line in printed[-1].splitlines()[-2:]} == {"head", "other"}
