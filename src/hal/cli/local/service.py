"""`hal service`: units of systemd that start HAL with the machine, or with the session of a user."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.runtime.home import Home

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
DEFAULT_NAME: Final = "hal"
OURS: Final = "# Written by `hal service install`"
UNIT: Final = """\
{ours}; another call writes it again. Changes of your own: systemctl edit {name}
[Unit]
Description=HAL scheduler, home {home}
Documentation=man:systemd.service(5)
{after}
[Service]
Type=notify
NotifyAccess=main
{user}Environment={environment}
ExecStart={start}
Restart=on-failure
RestartSec=5
WatchdogSec=60
# A first start compiles the engine, minutes on a busy machine.
TimeoutStartSec=900
TimeoutStopSec=180
# Steps outlive a restart of HAL, and a step that runs out of memory ends alone.
KillMode=process
OOMPolicy=continue
Delegate=yes
TasksMax=infinity
LimitNOFILE=524288

[Install]
WantedBy={target}
"""
AFTER_NETWORK: Final = "Wants=network-online.target\nAfter=network-online.target postgresql.service\n"

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
    hal service install --print                  # show the unit, write nothing
    """,
)
@_place_options
@click.option("--run-as", metavar="USER", help="With --system: the user that runs HAL (default: the home's owner).")
@click.option("--print", "only_print", is_flag=True, help="Print the unit and write nothing.")
@click.argument("options", metavar="[-- OPTION...]", nargs=-1, type=click.UNPROCESSED)
@pass_screen
def install(
    screen: Screen, user: bool | None, name: str, run_as: str | None, only_print: bool, options: tuple[str, ...]
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
    text = _unit(home, name, [verb, "--foreground", *options], runs_as, mine=mine)
    if only_print:
        for line in text.splitlines():
            screen.line(line)
        return
    _check_ours(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise DeniedError(
            f"{path} cannot be written: {error.strerror}", hint="as root, or a unit of your own: --user"
        ) from error
    control = f"systemctl{' --user' if mine else ''}"
    next_commands = [f"{control} daemon-reload", f"{control} enable --now {name}"]
    if mine:
        next_commands.append("loginctl enable-linger    # so that HAL also runs while you are not logged in")

    def render() -> None:
        screen.line(f"wrote {path}")
        for line in next_commands:
            screen.line(f"next: {line}")

    screen.show({"path": str(path), "next": next_commands}, render)


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
    """Remove the unit; what runs is left running."""
    from hal.core.model import DeniedError, NotFoundError

    mine = os.geteuid() != 0 if user is None else user
    path = _path(name, mine)
    _check_ours(path)
    try:
        path.unlink()
    except FileNotFoundError:
        raise NotFoundError(f"there is no unit {path}", hint="units have names: --name") from None
    except OSError as error:
        raise DeniedError(f"{path} cannot be removed: {error.strerror}", hint="remove it as its owner") from error
    control = f"systemctl{' --user' if mine else ''}"

    def render() -> None:
        screen.line(f"removed {path}")
        screen.line(f"next: {control} disable {name}; {control} daemon-reload")

    screen.show({"path": str(path)}, render)


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


def _unit(home: Home, name: str, words: list[str], user: str, *, mine: bool) -> str:
    start = [sys.executable, "-m", "hal.cli.main", *words]
    return UNIT.format(
        ours=OURS,
        name=name,
        home=_escaped(str(home.root)),
        after="" if mine else AFTER_NETWORK,
        user=f"User={user}\n" if user else "",
        environment=_quoted(f"HAL_HOME={home.root}"),
        start=" ".join(_quoted(word).replace("$", "$$") for word in start),
        target="default.target" if mine else "multi-user.target",
    )


def _escaped(text: str) -> str:
    """Text of a unit in which systemd replaces nothing."""
    return "".join(letter if letter.isprintable() else "?" for letter in text).replace("%", "%%")


def _quoted(word: str) -> str:
    """One word of a command line or one variable of a unit, as systemd takes it apart.

    Raises:
        SpecError: it has a line break.
    """
    from hal.core.model import SpecError

    if "\n" in word or "\r" in word:
        raise SpecError(f"{word!r} has a line break, which no unit can hold", hint="give the path another name")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if any(letter in escaped for letter in " \t'\"\\;") or not escaped else escaped


for one in (install, remove):
    service.add_command(one)
