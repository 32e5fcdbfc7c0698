"""`hal config`: what a start would say of hal.toml, and which settings it would have, without a running HAL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.runtime import config_file
from hal.runtime.home import Home
from hal.runtime.step_users import VARIABLE
from tests.cli.conftest import Ran
from tests.e2e.test_documents import blocks

Hal = Callable[..., Ran]

SHELF = """
from typing import Annotated
from msgspec import Meta, Struct
from hal.core.model.config_sections import Section

class ShelfSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    width: Annotated[int, Meta(description="in books")] = 7

SHELF = Section(name="shelf", kind=ShelfSection, reader="shelf", about="Books.")
"""


def test_a_good_file_has_no_mistakes(hal: Hal, tmp_path: Path) -> None:
    """Exit code 0, and one line."""
    file = tmp_path / "new.toml"
    file.write_text('[engine]\nbackfill = "conservative"\n[queues.short]\n')
    assert hal("config", "check", file) == Ran(0, f"{file}: no mistakes\n", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[engin]", "did you mean 'engine'?"),
        ("[engine]\nordr = 'fcfs'", "did you mean 'order'?"),
        ("[engine]\norder = 'acme'", "no policy 'acme'"),
        ("[node]\nprolog = ['x']", "node.prolog"),
        ("[queues.x]\ndefault_walltime = '2h'\nmax_walltime = '1h'", "queues.x"),
        ("[store]\nurl = 'postgresql://u:secret@/'", "store.url"),
    ],
)
def test_a_mistake_is_named_with_its_file(hal: Hal, tmp_path: Path, text: str, says: str) -> None:
    """Exit code 2; no secret is repeated."""
    file = tmp_path / "new.toml"
    file.write_text(text)
    ran = hal("config", "check", file)
    assert (ran.code, str(file) in ran.err, says in ran.err, "secret" in ran.err) == (2, True, True, False)


def test_without_a_name_the_file_of_this_hal_is_read(hal: Hal, hal_home: Path) -> None:
    """Where there is none, that is said; a file that was named must be there."""
    there = Home(hal_home).config
    assert "every setting has its default" in hal("config", "check").out
    there.write_text("[audit]\ndays = 3\n")
    assert f"{there}: no mistakes" in hal("config", "check").out
    assert hal("config", "check", hal_home / "nowhere.toml").code == 3


def test_settings_are_shown_with_where_they_come_from(
    hal: Hal, hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file or the default; a password is hidden."""
    monkeypatch.delenv(VARIABLE, raising=False)
    file = Home(hal_home).config
    file.write_text('[store]\nurl = "postgresql://hal:secret@db/hal"\n[audit]\ndays = 3\n')
    rows = [line.split() for line in hal("config", "show").out.splitlines()]
    assert ["audit.days", "3", str(file)] in rows
    assert ["store.url", '"postgresql://hal:***@db/hal"', str(file)] in rows
    assert ["retention.events_days", "30", "default"] in rows
    shown = json.loads(hal("config", "show", "--changed", "--json").out)
    assert [(one["section"], one["key"]) for one in shown] == [("store", "url"), ("audit", "days")]


def test_what_the_environment_sets_is_said_to_come_from_it(hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds whatever the file says."""
    monkeypatch.setenv(VARIABLE, "1")
    assert ["access.run_as_owner", "true", f"${VARIABLE}"] in [
        line.split() for line in hal("config", "show").out.splitlines()
    ]


def test_a_section_of_another_package_is_known_and_checked(
    hal: Hal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the package is installed; before, its table is a mistake."""
    file, site = tmp_path / "new.toml", tmp_path / "site"
    (site / "shelf-1.dist-info").mkdir(parents=True)
    (site / "shelf_of_tests.py").write_text(SHELF)
    (site / "shelf-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (site / "shelf-1.dist-info" / "entry_points.txt").write_text("[hal.sections]\nshelf = shelf_of_tests:SHELF\n")
    file.write_text("[shelf]\nwidth = 9\n")
    assert "shelf" in hal("config", "check", file).err
    monkeypatch.syspath_prepend(site)
    config_file.installed_sections.cache_clear()
    try:
        assert hal("config", "check", file).code == 0
        assert "shelf.width" in hal("config", "show", file, "--changed").out
        file.write_text("[shelf]\nwidht = 9\n")
        assert "did you mean 'width'" in hal("config", "check", file).err
    finally:
        config_file.installed_sections.cache_clear()


def test_the_example_of_the_manual_works(hal_home: Path, tmp_path: Path) -> None:
    """docs/config.md: a file is checked, shown and put in its place; HAL need not run."""
    (block,) = [one for one in blocks("docs/config.md", "sh") if one.startswith("set -e")]
    (tmp_path / "hal").write_text(f'#!/bin/sh\nexec {sys.executable} -m hal.cli.main "$@"\n')
    (tmp_path / "hal").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    hal_home.mkdir(exist_ok=True)
    ran = subprocess.run(["bash", "-c", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert ["engine.backfill", '"conservative"', "new.toml"] in [line.split() for line in ran.stdout.splitlines()]
    assert Home(hal_home).config.exists()


def test_neither_command_loads_the_engine(tmp_path: Path) -> None:
    """They answer at once: no numba."""
    program = "import sys\nfrom hal.cli.main import main\nmain(['config', 'check'])\nsys.exit('numba' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], env={"HAL_HOME": str(tmp_path / "home")}, capture_output=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


def test_the_file_of_the_topology_is_checked_with_the_settings(hal: Hal, tmp_path: Path) -> None:
    """Relative to the directory of hal.toml; the error names its line."""
    file = tmp_path / "new.toml"
    file.write_text('[topology]\nfile = "site/topology.conf"\n')
    (tmp_path / "site").mkdir()
    tree = tmp_path / "site" / "topology.conf"
    tree.write_text("SwitchName=s1 Nodes=n[1-4]\n")
    assert hal("config", "check", file) == Ran(0, f"{file}: no mistakes\n", "")
    tree.write_text("SwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n4\n")
    ran = hal("config", "check", file)
    assert (ran.code, f"{tree}:2: node 'n4' is in 's2' and in 's1'" in ran.err) == (2, True)
    tree.unlink()
    assert f"topology: {tree}: No such file" in hal("config", "check", file).err
