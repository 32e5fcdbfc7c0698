"""A controller that starts: where its kernels lie, and what it says before it can answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hal.client.addresses.address import Address
from hal.core.model import UnreachableError
from hal.runtime.home import Home
from hal.runtime.identity import write_pid_file
from hal.runtime.startup import read_stage, report_stages

CHOOSE = """
import sys
from hal.daemons.controller.__main__ import choose_cache
from hal.runtime.home import Home
choose_cache(Home(sys.argv[1], cache=sys.argv[2]))
from hal.daemons.controller.startup import kernel_choice, kernel_loading
import numba
print(numba.config.CACHE_DIR)
"""


def test_the_place_of_compiled_kernels_is_chosen_before_numba_is_loaded(tmp_path: Path) -> None:
    """It reads its settings once: imported too early, it would compile again where `make kernels` did not look."""
    environment = {key: text for key, text in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    ran = subprocess.run(
        [sys.executable, "-c", CHOOSE, str(tmp_path / "home"), str(tmp_path / "cache")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert Path(ran.stdout.strip()).parent == tmp_path / "cache"


def test_a_controller_that_starts_says_how_far_it_is(hal_home: Path) -> None:
    """Whoever finds no socket yet is told what it does, then that its controller runs, then that none does."""
    home = Home(hal_home)
    home.create()
    with report_stages(home) as say:
        say("compiling kernels, 3 of 9")
        assert read_stage(home) == ""
        write_pid_file(home.controller_pid)
        assert read_stage(home) == "compiling kernels, 3 of 9"
        with pytest.raises(UnreachableError, match=r"is starting: compiling kernels, 3 of 9 \(try again in a moment"):
            Address(home=home).connect(1.0)
    with pytest.raises(UnreachableError, match="does not answer yet; its controller runs"):
        Address(home=home).connect(1.0)
    home.controller_pid.unlink()
    with pytest.raises(UnreachableError, match=r"is not running \(start it with: hal up"):
        Address(home=home).connect(1.0)
