"""`hal backup` and `hal restore`: copy all of HAL's state to a file, and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

KEEP: Final = 7
"""Backups in a directory; older ones are removed."""
NAME_FORMAT: Final = "hal-%Y%m%dT%H%M%SZ.sqlite"
NAMES: Final = re.compile(r"hal-\d{8}T\d{6}Z\.sqlite")


@command(
    "backup",
    examples="""
    hal backup /backup/hal-monday.sqlite   # while HAL runs
    hal backup --into /backup --keep 14    # hal-20300131T020000Z.sqlite; the newest 14 stay
    """,
)
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--into", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Name the file by now.")
@click.option(
    "--keep", metavar="N", type=click.IntRange(1), default=KEEP, show_default=True, help="With --into: how many stay."
)
@pass_screen
def backup(screen: Screen, file: Path | None, into: Path | None, keep: int) -> int:
    """The new FILE holds jobs, attempts, policy, events and tokens. HAL may be running.

    Run this on a controller's machine. hal.toml and HAL_HOME/authority are not included: copy them, too.
    """
    if (file is None) == (into is None):
        raise click.UsageError("name a new FILE, or a directory with --into")
    if file is not None:
        return _run(screen, "backup", file, "")
    assert into is not None
    _make_private(into)
    name = datetime.now(UTC).strftime(NAME_FORMAT)
    code = _run(screen, "backup", into / name, "")
    if code == 0:
        screen.note(f"wrote {into / name}")
        _remove_old(screen, into, keep)
    return code


def _make_private(directory: Path) -> None:
    """
    Raises:
        DeniedError: it cannot be made.
    """
    from hal.core.model import DeniedError

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DeniedError(f"{directory} cannot be made: {error.strerror}", hint="name another directory") from error


def _remove_old(screen: Screen, directory: Path, keep: int) -> None:
    """All but the newest; what has another name is not ours."""
    ours = sorted(path for path in directory.iterdir() if NAMES.fullmatch(path.name) and path.is_file())
    for path in ours[:-keep]:
        try:
            path.unlink()
        except OSError as error:
            screen.note(f"{path} cannot be removed: {error.strerror}")


@command(
    "restore",
    examples="""
    hal restore /backup/hal-monday.sqlite                                       # into the store in hal.toml
    hal restore /backup/hal-monday.sqlite --to postgresql://hal@db.example/hal  # from SQLite to PostgreSQL
    """,
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", default="", metavar="URL", help="Store to fill (default: the one in hal.toml).")
@pass_screen
def restore(screen: Screen, file: Path, to: str) -> int:
    """Stop HAL first. A store that is not empty is refused and left unchanged.

    Attempts that started after the backup are unknown to it, and are stopped by their nodes.
    """
    return _run(screen, "restore", file, to)


def _run(screen: Screen, what: str, file: Path, to: str) -> int:
    import subprocess
    import sys

    from hal.core.model import SpecError

    home = screen.address.home
    if home is None:
        raise SpecError("--url: state can be copied only on a controller's own machine", hint="log in to that machine")
    home.check_ours()
    arguments = [what, str(file.absolute()), "--home", str(home.root), *(["--to", to] if to else [])]
    command = [sys.executable, "-m", "hal.daemons.controller.startup.backup", *arguments]
    return subprocess.run(command, check=False).returncode
