"""One line of progress on a terminal, removed at the end."""

from __future__ import annotations

import shutil
from types import TracebackType

from hal.cli.kit.screen import Screen
from hal.core.model.printable import printable


class Progress:
    """A context manager: `show` replaces the line, leaving removes it."""

    def __init__(self, screen: Screen) -> None:
        self._stream = screen.err
        self._shown = not screen.quiet and self._stream.isatty()
        self._drawn = ""

    @property
    def shown(self) -> bool:
        """Whether there is a terminal to show it on."""
        return self._shown

    def show(self, text: str) -> None:
        """Replace the line."""
        text = printable(text)
        if not self._shown or text == self._drawn:
            return
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{text[:width]}")
        self._stream.flush()
        self._drawn = text

    def clear(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()
