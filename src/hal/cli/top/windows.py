"""The windows that `hal top` opens over its list: text, a job's output, a question."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import RichLog, Static

from hal.cli.jobs.output_streams import ForTerminal
from hal.client.async_client import AsyncClient
from hal.client.async_job import AsyncJob
from hal.core.model import HALError
from hal.core.model.printable import printable

MAX_LINES: Final = 10_000
"""Lines of an output that are kept to scroll back to."""
TAIL_BYTES: Final = 64 << 10
"""So much of what a job has written is shown when its output is opened."""
CLOSE: Final[list[BindingType]] = [Binding("escape,q,enter", "dismiss", show=False)]
SCROLL: Final[list[BindingType]] = [
    Binding("j", "scroll(1)", show=False),
    Binding("k", "scroll(-1)", show=False),
]


class TextWindow(Screen[None]):
    """Lines of text, to scroll."""

    BINDINGS: ClassVar[list[BindingType]] = CLOSE
    DEFAULT_CSS = (
        "TextWindow Static { width: 100%; height: auto; text-wrap: wrap; } TextWindow #title { text-style: reverse; }"
    )

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines_shown = title, lines

    def compose(self) -> ComposeResult:
        """Title, text and keys."""
        yield Static(Text(printable(self._title), no_wrap=True), id="title")
        with VerticalScroll():
            yield Static(Text("\n".join(printable(line, lines=True) for line in self._lines_shown)), id="text")
        yield Static(Text("q back   arrows scroll", style="dim"), id="keys")

    def on_mount(self) -> None:
        """Keys scroll the text."""
        self.query_one(VerticalScroll).focus()


class OutputWindow(Screen[None]):
    """What one task of a job writes, followed until the window is closed or the task has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSE, Binding("f", "follow", show=False)]
    DEFAULT_CSS = (
        "OutputWindow RichLog { height: 1fr; scrollbar-size: 0 0; } OutputWindow #title { text-style: reverse; }"
        "OutputWindow Static { width: 100%; height: 1; }"
    )

    def __init__(self, client: AsyncClient, job: str, name: str, task: int) -> None:
        super().__init__()
        self._client, self._job, self._job_name, self._which = client, job, name, task

    def compose(self) -> ComposeResult:
        """Title, output and keys."""
        yield Static(Text(printable(f"output of {self._job}.{self._which} {self._job_name}"), no_wrap=True), id="title")
        yield RichLog(max_lines=MAX_LINES, wrap=False, markup=False, highlight=False, auto_scroll=True, min_width=1)
        yield Static(Text("q back   f follow, or stop to scroll", style="dim"), id="keys")

    def on_mount(self) -> None:
        """Begin to follow."""
        self.query_one(RichLog).focus()
        self.run_worker(self._copy(), exit_on_error=False)

    def action_follow(self) -> None:
        """Show the newest line from now on, or stay."""
        log = self.query_one(RichLog)
        log.auto_scroll = not log.auto_scroll
        if log.auto_scroll:
            log.scroll_end(animate=False)

    async def _copy(self) -> None:
        """Both streams, whole lines of each."""
        await asyncio.gather(self._copy_stream("stdout"), self._copy_stream("stderr"))
        self._write("", "- the task has ended -")

    async def _copy_stream(self, stream: str) -> None:
        log_of = AsyncJob(self._client, self._job).follower(stream, task=self._which)
        terminal, rest = ForTerminal(), ""
        try:
            async for piece in log_of.pieces(follow=True, tail_bytes=TAIL_BYTES):
                *lines, rest = (rest + terminal.shown(piece).decode()).split("\n")
                for line in lines:
                    self._write("", line)
                rest = rest[-TAIL_BYTES:]
            if rest:
                self._write("", rest)
            path, node = log_of.elsewhere
            if path:
                self._write("! ", f"{stream} goes to {path} on node {node}, as the job asks; HAL keeps none of it")
        except HALError as error:
            self._write("! ", f"{stream}: {error.message}")

    def _write(self, mark: str, line: str) -> None:
        with contextlib.suppress(LookupError):  # the window has been closed
            self.query_one(RichLog).write(Text(f"{mark}{printable(line, lines=True)}", no_wrap=True))


class Question(ModalScreen[bool]):
    """A question to be answered with y or n."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q,enter", "answer(False)", show=False),
    ]
    DEFAULT_CSS = (
        "Question { align: center middle; } "
        "Question Static { width: 80%; text-wrap: wrap; max-height: 90%; border: round ansi_default; padding: 0 1; }"
    )

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines_shown = lines

    def compose(self) -> ComposeResult:
        """The question."""
        lines = [*(printable(line) for line in self._lines_shown), "", "y yes   n no"]
        yield Static(Text("\n".join(lines)), id="question")

    def action_answer(self, yes: bool) -> None:
        """Answer it."""
        self.dismiss(yes)
