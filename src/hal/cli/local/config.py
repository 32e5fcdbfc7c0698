"""`hal config`: check hal.toml, and show the settings that hold, without a running HAL."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.core.model.config_sections import Effective

COLUMNS = ("SETTING", "VALUE", "FROM")

config = NounGroup(
    "config",
    help="hal.toml is read when HAL starts. These commands read it as a start does, and start nothing.",
    epilog="Example: hal config check && hal down && hal up",
)


@command(
    "check",
    output=True,
    examples="""
    hal config check                  # the file of this HAL
    hal config check new.toml         # before you put it there
    """,
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@pass_screen
def check(screen: Screen, file: Path | None) -> None:
    """Check a hal.toml as a start of HAL does.

    Finds unknown sections and settings, values that make no sense, policies that are not installed, and mistakes in the
    policy or the file of the topology. The first mistake is the error.
    """
    path = _path(screen, file)
    settings = effective_settings_of(path, must_exist=file is not None)
    written = sum(one.source != "default" for one in settings)
    there = path.exists()
    found = "no mistakes" if there else "does not exist; every setting has its default"
    screen.show({"file": str(path), "exists": there, "written": written}, lambda: screen.line(f"{path}: {found}"))


@command(
    "show",
    output=True,
    examples="""
    hal config show                   # every setting, and where its value comes from
    hal config show --changed         # only those that are not the default
    hal config show new.toml --json
    """,
)
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--changed", is_flag=True, help="Only settings that are not the default.")
@pass_screen
def show(screen: Screen, file: Path | None, changed: bool) -> None:
    """Show the settings of a start of HAL, with this hal.toml, and where each comes from.

    Passwords are not shown. The policy (queues, accounts, limits …) is kept by HAL itself: see hal policy show.
    """
    from hal.core.model.config_sections import toml_text

    settings = effective_settings_of(_path(screen, file), must_exist=file is not None)
    settings = [one for one in settings if not changed or one.source != "default"]
    rows = [(f"{one.section}.{one.key}", toml_text(one.value), one.source) for one in settings]

    def render() -> None:
        if rows:
            screen.table(COLUMNS, rows)
        else:
            screen.note("all settings are the default")

    screen.show(settings, render)


def _path(screen: Screen, file: Path | None) -> Path:
    from hal.runtime.home import find_home

    return file if file is not None else find_home(screen.home).config


def effective_settings_of(path: Path, *, must_exist: bool) -> list[Effective]:
    """All settings.

    Raises:
        SpecError: a mistake in the file; names it.
        NotFoundError: there is no such file.
    """
    from msgspec.structs import replace

    from hal.core.model.errors import NotFoundError, SpecError
    from hal.daemons.controller.config import read_config, settings_in_force, with_topology
    from hal.daemons.controller.startup.plugins import check_names, load_policies
    from hal.runtime import step_users
    from hal.runtime.config_file import config_text, is_anothers, others_sections
    from hal.runtime.topology_file import read_topology

    if must_exist and not path.exists():
        raise NotFoundError(f"there is no file {path}", hint="without FILE, hal.toml of this HAL is read")
    text = config_text(path)
    load_policies()
    try:
        settings = settings_in_force(text, str(path), others_sections())
        read = read_config(text, is_anothers)
        check_names(read.engine, read.admit)
        with_topology(read, partial(read_topology, path.parent))
    except SpecError as error:
        raise SpecError(f"{path}: {error.message.removeprefix('hal.toml: ')}", hint=error.hint) from error
    lends = ("access", step_users.SETTING)
    return [
        replace(one, value=True, source=f"${step_users.VARIABLE}")
        if (one.section, one.key) == lends and not one.value and step_users.lends_account(False)
        else one
        for one in settings
    ]


for one in (check, show):
    config.add_command(one)
