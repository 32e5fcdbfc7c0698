"""`hal backup --into`: backups named by their time, of which the newest stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hal.runtime.home import Home
from hal.store import Store
from tests.cli.conftest import Ran

Hal = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a store in which nothing is."""
    made = Home(tmp_path / "home")
    made.create()
    Store.open(made.database).close()
    return made


def test_the_newest_backups_of_a_directory_stay(hal: Hal, home: Home, tmp_path: Path) -> None:
    """What has another name is left alone, however old it looks."""
    into = tmp_path / "backups"
    into.mkdir()
    old = [into / f"hal-2020010{day}T000000Z.sqlite" for day in (1, 2, 3)]
    other = into / "hal-20200101.sqlite"
    for path in (*old, other):
        path.write_bytes(b"")
    ran = hal("--home", str(home.root), "backup", "--into", str(into), "--keep", "2")
    assert ran.code == 0, ran.err
    made = set(into.iterdir()) - {*old, other}
    assert len(made) == 1
    assert set(into.iterdir()) == {*made, old[-1], other}
    assert Store.open(made.pop(), create=False).counts() == {}


def test_a_backup_that_fails_removes_none(hal: Hal, tmp_path: Path) -> None:
    """There is no store: what was backed up before is all there is."""
    into = tmp_path / "backups"
    into.mkdir()
    before = [into / f"hal-2020010{day}T000000Z.sqlite" for day in (1, 2)]
    for path in before:
        path.write_bytes(b"")
    assert hal("--home", str(tmp_path / "home"), "backup", "--into", str(into), "--keep", "1").code == 1
    assert sorted(into.iterdir()) == before


@pytest.mark.parametrize("words", [(), ("a.sqlite", "--into", "b")])
def test_a_backup_has_one_name(hal: Hal, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A file or a directory, not both."""
    ran = hal("--home", str(tmp_path), "backup", *words)
    assert (ran.code, "--into" in ran.err) == (2, True)
