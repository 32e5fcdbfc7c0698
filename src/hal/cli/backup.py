"""`hal backup` and `hal restore`: all of HAL's state in one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen


@command(
    "backup",
    short_help="Copy all state into a file.",
    examples="""
    hal backup /backup/hal-monday.sqlite   # while HAL runs
    """,
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@pass_screen
def backup(screen: Screen, file: Path) -> int:
    """Copy everything that HAL keeps (jobs, attempts, policy, events, tokens) into a new file, while it runs.

    Run it on a controller's machine. hal.toml and HAL_HOME/authority are files of their own: copy them too.
    """
    return _run(screen, "backup", file, "")


@command(
    "restore",
    short_help="Fill the store from a backup.",
    examples="""
    hal restore /backup/hal-monday.sqlite                                       # into the store that hal.toml names
    hal restore /backup/hal-monday.sqlite --to postgresql://hal@db.example/hal  # from SQLite to PostgreSQL
    """,
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", default="", metavar="URL", help="The store to fill; default: the one that hal.toml names.")
@pass_screen
def restore(screen: Screen, file: Path, to: str) -> int:
    """Fill a store that was never used with a backup; one that holds anything is refused and left alone.

    Stop HAL first. Agents that have heard of later leaders than the backup knows are no trouble; attempts that it does
    not know are stopped by their nodes.
    """
    return _run(screen, "restore", file, to)


def _run(screen: Screen, what: str, file: Path, to: str) -> int:
    import subprocess
    import sys

    from hal.core.model import SpecError

    home = screen.address.home
    if home is None:
        raise SpecError("--url: state is copied on a controller's own machine only", hint="log in there")
    home.check_ours()
    arguments = [what, str(file.absolute()), "--home", str(home.root), *(["--to", to] if to else [])]
    return subprocess.run([sys.executable, "-m", "hal.daemons.controller.backup", *arguments], check=False).returncode
