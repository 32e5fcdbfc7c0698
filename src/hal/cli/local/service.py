"""`hal service`: units of systemd that start HAL with the machine, or with the session of a user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen
from hal.cli.local.backup import KEEP
from hal.cli.local.units import OURS, backup_units, service_unit

if TYPE_CHECKING:
    from hal.runtime.home import Home

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
DEFAULT_NAME: Final = "hal"
DAILY: Final = "daily"

service = NounGroup(
    "service",
    help="Start HAL with the machine: systemd runs `hal up --foreground`, or `hal agent --foreground` where the home "
    "belongs to a node of another HAL.",
    epilog="Example: hal service install && systemctl enable --now hal",
)


def _place_options(function: click.decorators.FC) -> click.decorators.FC:
    user = click.option(
        "--user/--system",
        "user",
        default=None,
        help="A unit of your own session, or of the machine (default: of the machine as root, else your own).",
    )
    name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the unit.")
    return user(name(function))


@command(
    "install",
    output=True,
    examples="""
    hal service install                          # starts what `hal up` started the last time
    hal service install -- --nodes 2 --with prices
    hal service install --run-as hal --home /var/lib/hal
    hal service install --backup /var/backups/hal    # and a timer that makes backups
    hal service install --print                  # show the unit, write nothing
    """,
)
@_place_options
@click.option("--run-as", metavar="USER", help="With --system: the user that runs HAL (default: the home's owner).")
@click.option("--backup", metavar="DIR", type=click.Path(path_type=Path), help="Also make backups there by a timer.")
@click.option(
    "--backup-at", metavar="TIME", default=DAILY, show_default=True, help="When, as systemd writes calendar events."
)
@click.option(
    "--backup-keep", metavar="N", type=click.IntRange(1), default=KEEP, show_default=True, help="How many stay."
)
@click.option("--print", "only_print", is_flag=True, help="Print the units and write nothing.")
@click.argument("options", metavar="[-- OPTION...]", nargs=-1, type=click.UNPROCESSED)
@pass_screen
def install(
    screen: Screen,
    user: bool | None,
    name: str,
    run_as: str | None,
    backup: Path | None,
    backup_at: str,
    backup_keep: int,
    only_print: bool,
    options: tuple[str, ...],
) -> None:
    """Write a unit of systemd; OPTIONs are of `hal up`, or of `hal agent` in the home of a joined node."""
    from hal.cli.local.layout import saved_agent
    from hal.core.model import DeniedError, SpecError
    from hal.runtime.home import find_home

    home = find_home(screen.home)
    home.create()
    mine = os.geteuid() != 0 if user is None else user
    if mine and run_as:
        raise SpecError("--run-as: a unit of your own session runs as you", hint="add --system")
    path = _path(name, mine)
    verb = "agent" if saved_agent(home) is not None else "up"
    _check_options(verb, options)
    runs_as = "" if mine else _user(run_as) if run_as else _owner(home)
    units = {path.name: service_unit(home.root, name, [verb, "--foreground", *options], runs_as, mine=mine)}
    if backup is not None:
        if verb == "agent":
            raise SpecError("--backup: this is the home of a node; the state is on the controller's machine")
        _check_calendar(backup_at)
        units |= backup_units(home.root, name, backup.absolute(), backup_keep, backup_at, runs_as, mine=mine)
    if only_print:
        for text in units.values():
            for line in text.splitlines():
                screen.line(line)
        return
    paths = [path.with_name(file) for file in units]
    for one in paths:
        _check_ours(one)
    for one, text in zip(paths, units.values(), strict=True):
        try:
            one.parent.mkdir(parents=True, exist_ok=True)
            one.write_text(text)
        except OSError as error:
            raise DeniedError(
                f"{one} cannot be written: {error.strerror}", hint="as root, or a unit of your own: --user"
            ) from error
    control = f"systemctl{' --user' if mine else ''}"
    timer = "" if backup is None else f" {name}-backup.timer"
    next_commands = [f"{control} daemon-reload", f"{control} enable --now {name}{timer}"]
    if mine:
        next_commands.append("loginctl enable-linger    # so that HAL also runs while you are not logged in")

    def render() -> None:
        for one in paths:
            screen.line(f"wrote {one}")
        for line in next_commands:
            screen.line(f"next: {line}")

    screen.show({"path": str(path), "paths": [str(one) for one in paths], "next": next_commands}, render)


@command(
    "remove",
    output=True,
    examples="""
    hal service remove
    """,
)
@_place_options
@pass_screen
def remove(screen: Screen, user: bool | None, name: str) -> None:
    """Remove the unit, and those that make backups; what runs is left running, and backups are kept."""
    from hal.core.model import DeniedError, NotFoundError

    mine = os.geteuid() != 0 if user is None else user
    path = _path(name, mine)
    backups = [path.with_name(f"{name}-backup{ending}") for ending in (".timer", ".service")]
    found = [one for one in (path, *backups) if one.exists()]
    if path not in found:
        raise NotFoundError(f"there is no unit {path}", hint="units have names: --name")
    for one in found:
        _check_ours(one)
    for one in found:
        try:
            one.unlink()
        except OSError as error:
            raise DeniedError(f"{one} cannot be removed: {error.strerror}", hint="remove it as its owner") from error
    control = f"systemctl{' --user' if mine else ''}"
    timer = f" {name}-backup.timer" if len(found) > 1 else ""

    def render() -> None:
        for one in found:
            screen.line(f"removed {one}")
        screen.line(f"next: {control} disable --now {name}{timer}; {control} daemon-reload")

    screen.show({"path": str(path), "paths": [str(one) for one in found]}, render)


def _path(name: str, mine: bool) -> Path:
    """Where the unit is.

    Raises:
        SpecError: the name is none of a unit.
    """
    from hal.core.model import SpecError

    if not name or len(name) > 200 or not all(letter.isalnum() or letter in "-_.@" for letter in name):
        raise SpecError(f"--name: '{name}' is no name of a unit", hint="letters, digits, '-', '_', '.', '@'")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (config / "systemd" / "user" if mine else SYSTEM_UNITS) / f"{name}.service"


def _check_options(verb: str, options: tuple[str, ...]) -> None:
    """Raises click.UsageError where `hal up` or `hal agent` would."""
    from hal.cli.local.agent import agent
    from hal.cli.local.up import up

    (up if verb == "up" else agent).make_context(f"hal {verb}", list(options))


def _check_calendar(text: str) -> None:
    """
    Raises:
        SpecError: no calendar event could look like that; what it means is for systemd to say.
    """
    from hal.core.model import SpecError
    from hal.core.model.errors import shown

    if not text.strip() or not all(letter.isalnum() or letter in " -:,*/~._+" for letter in text):
        raise SpecError(
            f"--backup-at: '{shown(text)}' is no calendar event of systemd",
            hint="daily, or Mon..Fri 02:30; `systemd-analyze calendar TIME` explains one",
        )


def _check_ours(path: Path) -> None:
    """
    Raises:
        ConflictError: somebody else's unit is there.
    """
    from hal.core.model import ConflictError

    try:
        with path.open(errors="replace") as unit:
            first = unit.readline(len(OURS))
    except OSError:  # there is none; whatever else it is, writing says
        return
    if first != OURS:
        raise ConflictError(f"{path} was not written by `hal service install`", hint="choose another --name")


def _user(name: str) -> str:
    """
    Raises:
        SpecError: this machine has no such user.
    """
    import pwd

    from hal.core.model import SpecError
    from hal.core.model.errors import shown

    try:
        return pwd.getpwnam(name).pw_name
    except (KeyError, ValueError):
        raise SpecError(f"--run-as: there is no user '{shown(name)}'", hint="create the user first") from None


def _owner(home: Home) -> str:
    """The user whose home it is, by number where the machine has no name for it."""
    import pwd

    uid = home.root.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


for one in (install, remove):
    service.add_command(one)
