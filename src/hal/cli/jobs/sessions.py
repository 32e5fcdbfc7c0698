"""`hal sessions`, `hal session`: the sessions that run, how one goes, what failed in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from hal.client.sessions.listing import SessionInfo

COLUMNS = ("NAME", "USER", "QUEUE", "STATE", "SLOTS", "SHARDS", "BROKER", "SLOTS' JOB", "OPENED")
WATCH_EVERY_S = 1.0

session = NounGroup(
    "session",
    help="A session runs many short tasks of a program in slots: client.session() in Python opens one.",
    epilog="Example: hal session show fit",
)


@command("sessions", output=True, examples="hal sessions")
@pass_screen
def sessions(screen: Screen) -> None:
    """List the sessions whose jobs have not ended: yours, or all if you are an operator."""
    from hal.client.sessions.job_labels import SESSION_LABEL
    from hal.client.sessions.listing import sessions_of

    found = sessions_of(screen.client.jobs(label=SESSION_LABEL))
    screen.show_list(found, COLUMNS, _row, "there are no sessions; client.session() in Python opens one")


def _row(one: SessionInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    slots = f"{one.running} of {one.most}"
    shards = f"{one.brokers} of {one.shards}" if one.shards > 1 else "1"
    return (one.name, one.user, one.queue, one.state, slots, shards, one.broker, one.slots, instant(one.submit_ms))


@command(
    "show",
    output=True,
    examples="""
    hal session show fit
    hal session show fit --watch      # until Ctrl-C
    hal session show fit -o json | jq .within_ms
    """,
)
@click.argument("name")
@click.option(
    "-w", "--watch", is_flag=True, help="Show it anew each second until Ctrl-C; in a pipe it is printed once."
)
@pass_screen
def show(screen: Screen, name: str, watch: bool) -> None:
    """Show how a session of yours goes: tasks, throughput, latencies, functions, tags, the use of each slot, failures.
    It asks the broker, on its machine."""
    from hal.cli.jobs.session_view import render_session
    from hal.client.sessions.failures import failures_of
    from hal.client.sessions.listing import file_of, my_session, view_of

    def render() -> None:
        found = my_session(screen.client, name)
        view = view_of(screen.client, found)
        screen.show(view, lambda: render_session(screen, view, failures_of(file_of(screen.client, found))))

    if watch and not screen.plain and screen.out.isatty():
        _watch(screen, render)
    else:
        render()


def _watch(screen: Screen, render: Callable[[], None]) -> None:
    """Print it anew each second, in place of what was printed before."""
    import io
    import time
    from contextlib import redirect_stdout

    from rich.live import Live
    from rich.text import Text

    from hal.cli.kit.tables import console_on

    with Live(console=console_on(screen.out), auto_refresh=False, screen=False) as live:
        try:
            while True:
                printed = io.StringIO()
                with redirect_stdout(printed):
                    render()
                live.update(Text(printed.getvalue(), no_wrap=True, overflow="ellipsis"), refresh=True)
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return


@command(
    "failures",
    output=True,
    examples="""
    hal session failures fit
    hal session failures fit --tag nightly --function train
    """,
)
@click.argument("name")
@click.option("--tag", default="", metavar="TAG", help="Only tasks with this tag.")
@click.option("--function", default="", metavar="NAME", help="Only tasks of this function.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most failures to show.")
@click.option("--brief", is_flag=True, help="A table, without tracebacks.")
@pass_screen
def failures(screen: Screen, name: str, tag: str, function: str, limit: int, brief: bool) -> None:
    """Show the tasks of a session of yours that failed last, the newest first, with their tracebacks: what raised, what
    ran for too long, and what was lost with its workers. The broker keeps 1,000."""
    from hal.cli.jobs.session_view import render_failures
    from hal.client.sessions.failures import failures_of
    from hal.client.sessions.listing import file_of, my_session

    found = failures_of(file_of(screen.client, my_session(screen.client, name)), tag, function)[:limit]

    def render() -> None:
        if found:
            render_failures(screen, found, tracebacks=not brief)
        else:
            screen.note("no task has failed" if not tag and not function else "no such task has failed")

    screen.show(found, render)


@command(
    "metrics",
    examples="""
    hal session metrics fit
    hal session metrics               # of all sessions of yours on this machine
    """,
)
@click.argument("name", required=False, default="")
@pass_screen
def metrics(screen: Screen, name: str) -> None:
    """Print the numbers of your sessions, in the text format of Prometheus, for its node exporter's textfile collector
    or for a script that pushes them."""
    from hal.client.sessions.listing import my_session, my_sessions, view_of
    from hal.client.sessions.prometheus import metrics_of
    from hal.core.model.errors import HALError

    if name:
        views = [view_of(screen.client, my_session(screen.client, name))]
    else:
        views = []
        for one in my_sessions(screen.client):
            try:
                views.append(view_of(screen.client, one))
            except HALError as error:
                screen.note(f"session {one.name} is left out: {error}")
    for line in metrics_of(views).splitlines():
        screen.line(line)


@command("end", examples="hal session end fit")
@click.argument("name")
@pass_screen
def end(screen: Screen, name: str) -> None:
    """End a session of yours: tasks that have not ended are lost, both its jobs end, and a durable one is forgotten."""
    from hal.client.sessions.kept import end_session

    outcomes = end_session(screen.client, name)
    if not outcomes:
        screen.note(f"session '{name}' is forgotten")
    for outcome in outcomes:
        screen.note(outcome.detail if not outcome.ok else f"job {outcome.id} is ended")


session.add_command(show)
session.add_command(failures)
session.add_command(metrics)
session.add_command(end)
