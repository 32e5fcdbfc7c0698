"""The text of systemd's units for HAL: the service itself, and backups by a timer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
BACKUP_SERVICE: Final = """\
{ours}; another call writes it again
[Unit]
Description=Backup of HAL, home {home}
{after}
[Service]
Type=oneshot
{user}Environment={environment}
ExecStart={start}
Nice=10
"""
BACKUP_TIMER: Final = """\
{ours}; another call writes it again. Changes of your own: systemctl edit {name}.timer
[Unit]
Description=Backups of HAL, home {home}

[Timer]
OnCalendar={at}
# After a machine was off; and not all machines of a site at once.
Persistent=true
RandomizedDelaySec=300

[Install]
WantedBy=timers.target
"""


def service_unit(home: Path, name: str, words: Sequence[str], user: str, *, mine: bool) -> str:
    """The unit that keeps HAL running.

    Args:
        home: HAL_HOME.
        words: command of `hal` and its options.
        user: who runs it; empty: whoever runs systemd.
        mine: of a user's own session, not of the machine.
    Raises:
        SpecError: a word has a line break.
    """
    return UNIT.format(
        ours=OURS,
        name=name,
        home=_escaped(str(home)),
        after="" if mine else AFTER_NETWORK,
        user=f"User={user}\n" if user else "",
        environment=_quoted(f"HAL_HOME={home}"),
        start=_start(words),
        target="default.target" if mine else "multi-user.target",
    )


def backup_units(home: Path, name: str, into: Path, keep: int, at: str, user: str, *, mine: bool) -> dict[str, str]:
    """The units that make backups, by the name of their files.

    Args:
        name: of the service of HAL.
        into: the directory of the backups.
        keep: how many of them stay.
        at: when, as `OnCalendar` takes it.
    Raises:
        SpecError: a word has a line break.
    """
    own = f"{name}-backup"
    service = BACKUP_SERVICE.format(
        ours=OURS,
        home=_escaped(str(home)),
        after="" if mine else AFTER_NETWORK,
        user=f"User={user}\n" if user else "",
        environment=_quoted(f"HAL_HOME={home}"),
        start=_start(["backup", "--into", str(into), "--keep", str(keep)]),
    )
    timer = BACKUP_TIMER.format(ours=OURS, home=_escaped(str(home)), name=own, at=_escaped(at))
    return {f"{own}.service": service, f"{own}.timer": timer}


def _start(words: Sequence[str]) -> str:
    """The command line of a unit that runs `hal`."""
    start = [sys.executable, "-m", "hal.cli.main", *words]
    return " ".join(_quoted(word).replace("$", "$$") for word in start)


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
