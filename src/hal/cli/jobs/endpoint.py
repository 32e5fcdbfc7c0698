"""`hal endpoint`: look up by name where the ready tasks of a service are reached."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.service_calls import ServiceInfo

COLUMNS: Final = ("TASK", "NODE", "ADDRESS", "READY SINCE")
LOOK_S: Final = (0.1, 2.0)
"""First and longest pause between two looks with --wait; it doubles."""


@command(
    "endpoint",
    output=True,
    examples="""
    hal endpoint web
    hal endpoint web --wait 1m             # until a task is ready
    hal endpoint web --port http           # HOST:PORT of each ready task, a line each
    curl http://$(hal endpoint web --port http | shuf -n 1)/
    """,
)
@click.argument("name")
@click.option("-u", "--user", help="Whose service it is (default: yours).")
@click.option("--port", metavar="NAME", help="Print only HOST:PORT of this port, a line for each ready task.")
@click.option("--wait", metavar="TIME", help="Wait so long for a task to be ready.")
@pass_screen
def endpoint(screen: Screen, name: str, user: str | None, port: str | None, wait: str | None) -> None:
    """A service is known by the name of its jobs and their user. Without a ready task the command fails.

    While one job replaces another, the ready tasks of both are shown.
    """
    from hal.core.model import NotFoundError

    found = _look(screen, name, user, wait)
    if port is None:
        screen.show(found, lambda: _table(screen, found))
        return
    try:
        addresses = [one.address(port) for one in found.endpoints]
    except KeyError:
        known = sorted({name for one in found.endpoints for name in one.ports})
        hint = f"its ports: {', '.join(known) or 'none'}"
        raise NotFoundError(f"service '{name}' has no port '{port}'", hint=hint) from None
    screen.show(addresses, lambda: _lines(screen, addresses))


def _look(screen: Screen, name: str, user: str | None, wait: str | None) -> ServiceInfo:
    """The service, of which a task is ready.

    Raises:
        HALError: there is none, or none is ready in time.
    """
    from hal.core.model import ConflictError, HALError, NotFoundError, TimedOutError, parse_duration

    deadline_s = None if wait is None else time.monotonic() + int(parse_duration(wait, field="--wait")) / 1000
    pause_s = LOOK_S[0]
    while True:
        error: HALError
        try:
            found = screen.client.service(name, user=user or "")
            if found.endpoints:
                return found
            what = f"service '{name}': 0 of {found.tasks} tasks are ready"
            error = (ConflictError if wait is None else TimedOutError)(what, hint=f"hal why {found.jobs[-1]}")
        except NotFoundError as missing:
            error = missing
        left_s = 0.0 if deadline_s is None else deadline_s - time.monotonic()
        if left_s <= 0:
            raise error
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LOOK_S[1])


def _lines(screen: Screen, addresses: list[str]) -> None:
    for one in addresses:
        screen.line(one)


def _table(screen: Screen, found: ServiceInfo) -> None:
    from hal.cli.kit.formats import instant

    rows = []
    for one in found.endpoints:
        alone = len(one.ports) == 1
        named = [one.address(name) if alone else f"{name}={one.address(name)}" for name in one.ports]
        rows.append((f"{one.job}.{one.task}", one.node, ", ".join(named) or one.host, instant(one.since_ms)))
    screen.table(COLUMNS, rows)
    if found.more:
        screen.note(f"{len(found.endpoints)} of {found.ready} ready tasks are shown")
