"""Commands that are suggested find the home that they are about."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hal.cli.local.processes import option_of, read_again
from hal.runtime.home import Home


def test_another_home_is_named_as_a_shell_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the commands names it, however it is spelled; the one that HAL finds by itself is not named."""
    root = tmp_path / "my home"
    monkeypatch.setenv("HAL_HOME", str(tmp_path))
    commands = read_again(Home(root)).partition(": ")[2].split(" && ")
    assert [shlex.split(one)[-2:] == ["--home", str(root)] for one in commands] == [True, False, True]
    assert all(str(root) in shlex.split(one) for one in commands)
    monkeypatch.setenv("HAL_HOME", str(root))
    assert option_of(Home(root)) == ""
    assert "--home" not in read_again(Home(root))
