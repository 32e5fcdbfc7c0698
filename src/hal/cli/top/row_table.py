"""A table of any number of rows: only those on the screen are formatted and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hal.cli.kit.colours import STATE_COLOURS
from hal.cli.top.frame import lines_of
from hal.cli.top.listings import JOBS, Listing, cells_of
from hal.core.model.printable import printable

STATE: Final = "STATE"
MARK: Final = "*"


class RowTable(ScrollView, can_focus=True):
    """The first line has the titles; the cursor stays at its row when others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move(-1000000000)", show=False),
        Binding("end,G", "move(1000000000)", show=False),
        Binding("space", "mark", show=False),
    ]
    DEFAULT_CSS = "RowTable { height: 1fr; scrollbar-size: 0 0; overflow-x: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self.listing: Listing = JOBS
        self.rows: Sequence[tuple[str, Any]] = ()
        """Each behind its key."""
        self.marked: set[str] = set()
        self._now_ms = 0
        self._order = ""
        self._cursor = 0
        self._drawn: tuple[int, str, list[str]] | None = None
        """The first row that is drawn, the titles and the lines from it on."""

    def show(self, listing: Listing, rows: Sequence[tuple[str, Any]], now_ms: int, order: str) -> None:
        """Show these rows; the cursor stays at the row at which it is, if that is still there."""
        at = self.key
        if listing is not self.listing:
            self.marked.clear()
            self._cursor, at = 0, ""
            self.scroll_to(y=0, animate=False)
        self.listing, self.rows, self._now_ms, self._order = listing, rows, now_ms, order
        if self._cursor or self.scroll_offset.y:
            self._cursor = next((index for index, (key, _) in enumerate(rows) if key == at), self._cursor)
        self._cursor = max(0, min(self._cursor, len(rows) - 1))
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        self._redraw()

    @property
    def key(self) -> str:
        """Of the row at the cursor; '' if there is none."""
        return self.rows[self._cursor][0] if self._cursor < len(self.rows) else ""

    @property
    def row(self) -> Any:
        """The row at the cursor; None if there is none."""
        return self.rows[self._cursor][1] if self._cursor < len(self.rows) else None

    @property
    def position(self) -> int:
        """Of the cursor, from 0."""
        return self._cursor

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._cursor = max(0, min(self._cursor + rows, len(self.rows) - 1))
        self.scroll_to_region(
            Region(0, max(0, self._cursor), 1, 2), animate=False, force=True, immediate=True, x_axis=False
        )
        self._redraw()

    def action_page(self, pages: int) -> None:
        """Move the cursor by a screen."""
        self.action_move(pages * max(1, self.size.height - 2))

    def action_mark(self) -> None:
        """Mark the row at the cursor, or take its mark off, and go on to the next."""
        if self.key:
            self.marked ^= {self.key}
            self.action_move(1)

    def on_resize(self) -> None:
        """The window has another size."""
        self._redraw()

    def _redraw(self) -> None:
        self._drawn = None
        self.refresh()

    def _lines(self) -> tuple[int, str, list[str]]:
        """What is on the screen; formatted once for each frame."""
        first = self.scroll_offset.y
        if self._drawn is None or self._drawn[0] != first:
            shown = self.rows[first : first + max(1, self.size.height - 1)]
            cells = [[printable(cell) for cell in cells_of(self.listing, row, self._now_ms)] for _, row in shown]
            titles = [column.title for column in self.listing.columns]
            if self._order:
                arrow = "v" if self._order.startswith("-") else "^"
                sorted_by = self._order.removeprefix("-")
                head = [f"{title}{arrow}" if title == sorted_by else title for title in titles]
            else:
                head = titles
            cells = [head, *cells]
            _, (heading, *lines), _ = lines_of(titles, cells, max(1, self.size.width - 2))
            self._drawn = (first, heading, lines)
        return self._drawn

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self.size.width
        first, heading, lines = self._lines()
        if y == 0:
            return _strip(f"  {heading}", Style(bold=True, underline=True), width)
        index = first + y - 1
        if not 0 < y <= len(lines) or index >= len(self.rows):
            return Strip.blank(width)
        key, row = self.rows[index]
        mark = MARK if key in self.marked else " "
        text = f"{mark} {lines[y - 1]}"
        if index == self._cursor:
            return _strip(text, Style(reverse=True), width)
        state = str(getattr(row, "state", ""))
        colour = STATE_COLOURS.get(state)
        at = text.find(state, 2) if colour else -1
        if at < 0:
            return _strip(text, Style(bold=mark == MARK), width)
        parts = [Segment(text[:at]), Segment(state, Style(color=colour)), Segment(text[at + len(state) :])]
        return Strip(parts).adjust_cell_length(width)


def _strip(text: str, style: Style, width: int) -> Strip:
    return Strip([Segment(text, style)]).adjust_cell_length(width, style)
