"""Compiled kernels are taken from HAL's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LOOK = """
import sys
from hal.cli.main import main
print(main(["simulate", sys.argv[1], "--policy", "easy"]))
import numba
print(numba.config.CACHE_DIR)
"""


def test_a_simulation_looks_for_compiled_kernels_in_hals_cache(tmp_path: Path) -> None:
    """numba reads where they are when it is imported: were that too early, each new user would compile for minutes."""
    (tmp_path / "log.swf").write_text("no log\n")
    environ = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environ |= {"HAL_CACHE": str(tmp_path / "cache"), "HAL_HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        [sys.executable, "-c", _LOOK, tmp_path / "log.swf"], env=environ, capture_output=True, text=True, check=True
    )
    code, cache = ran.stdout.split()
    assert (code != "0", Path(cache).parent if Path(cache).name.startswith("kernels-") else Path(cache)) == (
        True, tmp_path / "cache",
    ), ran.stderr  # fmt: skip
