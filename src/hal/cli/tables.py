"""Tables on a terminal (rich)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hal.cli.screen import STATE_COLOURS, colour_allowed

NARROW_FIRST = ("NAME", "REASON", "LABELS", "MESSAGE", "WAIT/REASON", "NODES", "DESCRIPTION")
"""Columns that give way when the window is narrow; the others are never cut."""


def console_on(stream: TextIO) -> Console:
    """A console that keeps to NO_COLOR and takes nothing for markup."""
    return Console(file=stream, no_color=not colour_allowed(stream), markup=False, highlight=False, emoji=False)


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], state_column: str) -> Table:
    """The table as rich draws it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(
            Text(name), no_wrap=True, overflow="ellipsis", min_width=4 if name in NARROW_FIRST else len(name)
        )
    for row in rows:
        table.add_row(
            *(
                Text(cell, style=STATE_COLOURS.get(cell, "") if name == state_column else "")
                for name, cell in zip(columns, row, strict=True)
            )
        )
    return table


def print_rich(stream: TextIO, columns: Sequence[str], rows: Sequence[Sequence[str]], state_column: str) -> None:
    """Write the table to a terminal."""
    console_on(stream).print(rich_table(columns, rows, state_column))
