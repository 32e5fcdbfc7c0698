"""The command line run in this process, against a scripted controller where one is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import pytest

from hal.cli.main import main
from tests.client.conftest import Serve, serve

__all__ = ["Ran", "Serve", "hal", "serve"]


class Ran(NamedTuple):
    """What a command returned and wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def hal(hal_home: os.PathLike[str], capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`hal('jobs', '--all')`: runs it with this test's HAL_HOME."""

    def run(*args: object) -> Ran:
        capfd.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run
