"""How far a wait has come, in one line: on a terminal, or in a notebook's cell. Nothing is imported for it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo

BAR: Final = 20
"""Columns of a bar."""


class ProgressLine:
    """A line that is written over and over, and is gone at the end; nowhere to be seen where stderr is no terminal and
    no notebook runs."""

    def __init__(self, *, shown: bool = True) -> None:
        self._notebook = _notebook() if shown else None
        self._terminal = shown and self._notebook is None and sys.stderr is not None and sys.stderr.isatty()
        self._cell: Any = None
        self._text = ""

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    @property
    def shown(self) -> bool:
        """Whether anybody can see it."""
        return self._terminal or self._notebook is not None

    def clear(self) -> None:
        """Take it off a terminal; in a notebook it stays."""
        if self._terminal and self._text:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, text: str, part: float | None = None) -> None:
        """Show it in place of what was shown.

        Args:
            part: how much is done, from 0 to 1, as a bar before it; None: no bar.
        """
        if part is not None:
            bar = "#" * int(part * BAR)
            text = f"[{bar:{BAR}}] {text}"
        if text == self._text:
            return
        self._text = text
        if self._notebook is not None:
            shown = {"text/plain": text}
            if self._cell is None:
                self._cell = self._notebook.display(shown, raw=True, display_id=True)
            else:
                self._cell.update(shown, raw=True)
        elif self._terminal:
            import shutil  # takes milliseconds

            columns = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r{text[: max(columns - 1, 20)]}\x1b[K")
            sys.stderr.flush()

    def show_job(self, info: JobInfo) -> None:
        """How far a job has come."""
        self.show(progress_text(info))


def progress_text(info: JobInfo) -> str:
    """`job 8 fit: 40 of 100 tasks ended, 2 failed, 3 running`."""
    name = f"job {info.id} {info.name}".rstrip()
    if info.tasks == 1:
        return f"{name}: {info.state}"
    counts = info.counts
    ended = sum(counts.get(state, 0) for state in ("succeeded", "failed", "timed-out", "cancelled"))
    bad = counts.get("failed", 0) + counts.get("timed-out", 0)
    more = (f", {bad} failed" if bad else "") + (f", {counts['running']} running" if counts.get("running") else "")
    return f"{name}: {ended} of {info.tasks} tasks ended{more}"


def _notebook() -> Any:
    """IPython's display module, where this program runs in a notebook; it is not imported otherwise."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from importlib import import_module

    return import_module("IPython.display")
