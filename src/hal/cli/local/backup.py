"""`hal backup` and `hal restore`: copy all of HAL's state to a file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen


@command(
    "backup",
    examples="""
    hal backup /backup/hal-monday.sqlite   # while HAL runs
    """,
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@pass_screen
def backup(screen: Screen, file: Path) -> int:
    """The new FILE holds jobs, attempts, policy, events and tokens. HAL may be running.

    Run this on a controller's machine. hal.toml and HAL_HOME/authority are not included: copy them, too.
    """
    return _run(screen, "backup", file, "")


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
