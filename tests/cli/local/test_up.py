"""What `hal up` refuses before it starts anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hal.runtime.home import Home
from tests.cli.conftest import Ran


@pytest.mark.parametrize(
    "args",
    [("--nodes", "-1"), ("--nodes", "65"), ("--cpus", "0"), ("--memory", "x"), ("--tcp", "h:"), ("--name", "../x")],
)
def test_bad_options_start_nothing(args: tuple[str, ...], hal: Callable[..., Ran], hal_home: Path) -> None:
    """Exit code 2, and nothing is left of it."""
    assert hal("up", *args).code == 2
    assert not Home(hal_home).controller_pid.exists()
