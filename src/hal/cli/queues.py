"""`hal queues`: the queues and how long they are."""

from __future__ import annotations

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

COLUMNS = ("NAME", "PRIORITY", "PENDING", "RUNNING", "HELD", "DEFAULT WALLTIME", "MAX WALLTIME")


@command("queues", short_help="List queues.", output=True, examples="hal queues")
@pass_screen
def queues(screen: Screen) -> None:
    """List queues."""
    from hal.cli.wording import limit

    found = screen.client.queues()
    rows = [
        (
            queue.name,
            str(queue.priority),
            str(queue.pending),
            str(queue.running),
            str(queue.held),
            limit(queue.default_walltime),
            limit(queue.max_walltime),
        )
        for queue in found
    ]
    screen.show(found, lambda: screen.table(COLUMNS, rows))
