"""Tables on a terminal: fitted to the window by shortening long texts first, then by leaving columns out (rich)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hal.cli.kit.colours import STATE_COLOURS, colour_allowed
from hal.core.model.printable import printable

GAP = 2
"""Spaces between columns."""
NARROW_FIRST = ("NAME", "REASON", "LABELS", "MESSAGE", "NODES", "DESCRIPTION")
"""Columns whose texts are shortened where the window is narrow; the others are shown whole."""
LEAST = 8
"""No text is shortened below this."""
LEFT_OUT_FIRST = (
    "LABELS", "DESCRIPTION", "STARTED", "CAUSE", "LEFT", "NODES", "USER", "QUEUE", "DEFAULT", "MAX", "RUNNING", "HELD",
    "JOBS", "REASON", "MESSAGE", "TASKS", "TIME", "EXIT", "ATTEMPT", "LEVEL", "IDLE",
)  # fmt: skip
"""Columns that are left out, in this order, where shortening is not enough."""


class _SafeConsole(Console):
    """A console on which text cannot act: only what rich itself adds steers the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, lines=True), segment.style)


def console_on(stream: TextIO) -> Console:
    """A console that keeps to NO_COLOR and takes nothing for markup."""
    return _SafeConsole(file=stream, no_color=not colour_allowed(stream), markup=False, highlight=False, emoji=False)


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Which columns are shown, by position, and how wide each is, so that a line takes at most `width` if it can."""
    natural = {at: max(cell_len(row[at]) for row in (columns, *rows)) for at in range(len(columns))}
    least = {
        at: min(wide, max(LEAST, len(columns[at]))) if columns[at] in NARROW_FIRST else wide
        for at, wide in natural.items()
    }
    for name in LEFT_OUT_FIRST:
        if _total(least) <= width:
            break
        least = {at: wide for at, wide in least.items() if columns[at] != name}
    widths = {at: natural[at] for at in least}
    while (excess := _total(widths) - width) > 0:
        widest = max(widths, key=lambda at: widths[at] - least[at])
        if widths[widest] == least[widest]:
            break
        # All that can give way come down together, the longest first.
        next_longest = max((widths[at] for at in widths if at != widest and widths[at] > least[at]), default=0)
        widths[widest] = max(least[widest], min(widths[widest] - 1, max(next_longest - 1, widths[widest] - excess)))
    return widths


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * max(0, len(widths) - 1)


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], state_column: str, console: Console) -> Table:
    """The table as rich draws it there."""
    rows = [[printable(cell) for cell in row] for row in rows]
    shown = fitted(columns, rows, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="" if console.no_color else "bold")
    for at, wide in shown.items():
        table.add_column(Text(columns[at]), no_wrap=True, overflow="ellipsis", width=wide)
    for row in rows:
        table.add_row(
            *(
                Text(row[at], style=STATE_COLOURS.get(row[at], "") if columns[at] == state_column else "")
                for at in shown
            )
        )
    return table


def print_rich(stream: TextIO, columns: Sequence[str], rows: Sequence[Sequence[str]], state_column: str) -> None:
    """Write the table to a terminal."""
    console = console_on(stream)
    console.print(rich_table(columns, rows, state_column, console))
