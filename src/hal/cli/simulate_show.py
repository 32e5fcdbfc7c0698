"""What `hal simulate` shows in both of its forms: tables, times in words, bars of progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hal.cli.screen import Screen

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

PLAIN_WIDTH = 132
"""Columns of a table that is not written to a terminal."""


def bars(screen: Screen) -> Progress:
    """Bars of progress on standard error, where somebody looks; gone at the end."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from hal.cli.tables import console_on

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console_on(screen.err),
        transient=True,
        disable=screen.quiet or not screen.err.isatty(),
    )


class BarUpdate:
    """Tells a progress bar how many jobs are done with."""

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self.progress = progress
        self.bar = bar

    def __call__(self, jobs: int) -> None:
        self.progress.update(self.bar, completed=jobs)


def plain_table(first: str, *others: str) -> Table:
    """A table without lines: one column of names, the others to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def as_duration(seconds: float) -> str:
    """The two largest units: 3d 4h, 2h 05m, 7m 09s, 12s."""
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days:,}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {left:02d}s"
    return f"{left}s"
