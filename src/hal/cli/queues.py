"""`hal queues`: the queues and how long they are."""

from __future__ import annotations

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

COLUMNS = ("NAME", "STATE", "JOBS", "PENDING", "HELD", "RUNNING", "DEFAULT", "MAX", "DESCRIPTION")


@command("queues", short_help="List queues.", output=True, examples="hal queues")
@pass_screen
def queues(screen: Screen) -> None:
    """List queues: their jobs and tasks that have not ended, and the walltimes they give (DEFAULT) and allow (MAX)."""
    from hal.cli.wording import limit

    found = screen.client.queues()
    rows = [
        (
            queue.name,
            "open" if queue.open else "closed",
            str(queue.jobs),
            str(queue.pending),
            str(queue.held),
            str(queue.running),
            limit(queue.default_walltime),
            limit(queue.max_walltime),
            queue.description,
        )
        for queue in found
    ]
    screen.show(found, lambda: screen.table(COLUMNS, rows))
