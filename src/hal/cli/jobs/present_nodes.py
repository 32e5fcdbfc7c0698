"""The nodes that a job with extensions has now, and a file that says so as they come and go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hal.cli.kit.output_files import written_whole

if TYPE_CHECKING:
    from hal.cli.kit.screen import Screen

PAST_MS: Final = 60_000
"""What happened longer ago than this, before the command began, was seen by its first look."""


def present_nodes(screen: Screen, job: str) -> list[str]:
    """Return the nodes of the tasks that run, the base's first; a task that has been told to leave is none of them."""
    return [node for task in screen.client.job(job).tasks("running") for node in task.nodes]


def follow_nodes(
    screen: Screen, job: str, path: Path, lines_of: Callable[[Sequence[str]], list[str]], told: int
) -> None:
    """Write the file whole whenever the job's nodes have changed, until this process's parent has ended.

    Args:
        lines_of: the lines for these nodes.
        told: the signal for the parent after each change, but not after the file was written first; 0: none.
    """
    parent = os.getppid()
    begun_ms = round(time.time() * 1000)
    known: list[str] | None = None

    def look() -> None:
        nonlocal known
        nodes = present_nodes(screen, job)
        if nodes == known:
            return
        with written_whole(path) as unfinished:
            unfinished.write_text("".join(f"{line}\n" for line in lines_of(nodes)), "utf-8")
        if known is not None and told and os.getppid() == parent:
            os.kill(parent, told)
        known = nodes

    look()
    # From the first event on: what happens while this connects is not missed.
    for event in screen.client.events(after=0, follow=True, job=job):
        if os.getppid() != parent:
            return
        if event.at_ms >= begun_ms - PAST_MS:
            look()


def signal_named(name: str) -> int:
    """Return the number of a signal, SIGUSR2 or USR2.

    Raises:
        SpecError: there is none of that name.
    """
    from hal.core.model import SpecError, shown

    try:
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"].value
    except KeyError:
        raise SpecError(f"--signal: there is no signal '{shown(name)}'", hint="such as USR1, USR2 or HUP") from None
