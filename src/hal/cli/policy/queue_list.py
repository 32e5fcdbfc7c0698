"""`hal queues`: list queues and the jobs in them."""

from __future__ import annotations

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

COLUMNS = ("NAME", "STATE", "JOBS", "PENDING", "HELD", "RUNNING", "DEFAULT", "MAX", "DESCRIPTION")


@command("queues", output=True, examples="hal queues")
@pass_screen
def queues(screen: Screen) -> None:
    """JOBS counts jobs and PENDING, HELD and RUNNING count tasks that have not ended.

    DEFAULT and MAX are the default and the longest walltime.
    """
    from hal.cli.kit.formats import limit
    from hal.core.model.policy_delegation import state_of

    found = screen.client.queues()
    rows = [
        (
            queue.name,
            state_of(queue),
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
