"""`hal sessions`, `hal session`: the sessions that run, and how one goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.sessions.listing import SessionInfo, SessionView

COLUMNS = ("NAME", "USER", "QUEUE", "STATE", "SLOTS", "BROKER", "SLOTS' JOB", "OPENED")
SLOT_COLUMNS = ("TASK", "WORKER", "DONE", "HAS", "USE", "MEAN", "SILENT")
BAR = 40

session = NounGroup(
    "session",
    help="A session runs many short tasks of a program in slots: client.session() in Python opens one.",
    epilog="Example: hal session show fit",
)


@command("sessions", output=True, examples="hal sessions")
@pass_screen
def sessions(screen: Screen) -> None:
    """List the sessions whose jobs have not ended: yours, or all if you are an operator."""
    from hal.client.sessions.listing import SESSION_LABEL, sessions_of

    found = sessions_of(screen.client.jobs(label=SESSION_LABEL))
    screen.show_list(found, COLUMNS, _row, "there are no sessions; client.session() in Python opens one")


def _row(one: SessionInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    slots = f"{one.running} of {one.most}"
    return (one.name, one.user, one.queue, one.state, slots, one.broker, one.slots, instant(one.submit_ms))


@command("show", output=True, examples="hal session show fit")
@click.argument("name")
@pass_screen
def show(screen: Screen, name: str) -> None:
    """Show how a session of yours goes: tasks, latencies, the use of each slot. It asks the broker, on its machine."""
    from hal.client.sessions.listing import my_session, view_of

    found = view_of(screen.client, my_session(screen.client, name))
    screen.show(found, lambda: _render(screen, found))


def _render(screen: Screen, found: SessionView) -> None:
    from hal.cli.kit.formats import span

    one = found.session
    screen.fields(
        {
            "session": one.name,
            "broker": f"job {one.broker}, {one.state}",
            "slots": f"job {one.slots}: {len(found.slots)} of {one.most}",
            "runs for": span(found.uptime_s * 1_000),
            "clients": str(found.clients),
            "tasks": f"{found.done:,} done ({found.rate:,.0f} a second), {found.unanswered:,} not answered, "
            f"of which {found.waiting:,} wait",
            "late": ", ".join(found.late),
        }
    )
    if found.within_ms:
        screen.line()
        most = max(found.within_ms.values())
        for within, tasks in found.within_ms.items():
            bar = "#" * max(round(BAR * tasks / most), 1)
            screen.line(f"answered within {int(within):>9,} ms  {tasks:>12,}  {bar}")
    if found.slots:
        screen.line()
        screen.table(
            SLOT_COLUMNS,
            [
                (
                    str(slot.task),
                    slot.worker,
                    f"{slot.done:,}",
                    f"{slot.held:,}",
                    f"{slot.use:.0%}",
                    _time(slot.mean_us) if slot.done else "-",
                    f"{slot.silent_s:.1f}s" if slot.held else "-",
                )
                for slot in found.slots
            ],
        )


def _time(us: int) -> str:
    return f"{us} us" if us < 1_000 else f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"


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
session.add_command(end)
