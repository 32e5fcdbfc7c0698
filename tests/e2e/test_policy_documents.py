"""What the pages about the policy show is run as it stands there, on a HAL with real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import DEADLINE_S, LiveHal

ROOT = Path(__file__).parents[2]
PAGES = ("policy", "queues", "priority", "shares", "limits", "bookings", "why")


@pytest.mark.slow
def test_the_examples_of_the_policy_pages_work(own_hal: LiveHal, tmp_path: Path) -> None:
    """Every block that begins with `set -e`, page after page, with one HAL; `!` is before what must be refused."""
    own_hal.up("--name", "n1", "--cpus", "4", "--memory", "1GiB")
    (tmp_path / "hal").write_text(f'#!/bin/sh\nexec {sys.executable} -m hal.cli.main "$@"\n')
    (tmp_path / "hal").chmod(0o755)
    user = own_hal.client().submit(["true"]).refresh().user
    env = own_hal.environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "USER": user}
    for page in PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        blocks = [one for one in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) if one.startswith("set -e")]
        assert blocks, page
        # With `set -e` alone a line that begins with `!` never ends the shell.
        script = re.sub(r"^! (.*)$", r"if \1\nthen exit 9; fi", "\n".join(blocks), flags=re.M)
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
        assert ran.returncode == 0, f"{page}: {ran.stdout}\n{ran.stderr}"
