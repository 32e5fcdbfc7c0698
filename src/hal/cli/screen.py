"""Where a command writes, in which form, with or without colour, and which HAL it speaks to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from hal.client.address import Address
    from hal.client.sync import Client

FORMATS = ("table", "json", "yaml")
STATE_COLOURS = {
    "running": "green",
    "up": "green",
    "succeeded": "blue",
    "pending": "yellow",
    "held": "magenta",
    "failed": "red",
    "timed-out": "red",
    "cancelled": "bright_black",
    "unreachable": "red",
    "down": "red",
    "cordoned": "magenta",
    "draining": "yellow",
}


class Screen:
    """One per invocation; options of the group and of the command fill it in."""

    def __init__(self) -> None:
        self.home: str | None = None
        self.url: str | None = None
        self.unencrypted = False
        self.format = "table"
        self.quiet = False

    @property
    def out(self) -> TextIO:
        """Standard output as it is now (tests replace it)."""
        return sys.stdout

    @property
    def err(self) -> TextIO:
        return sys.stderr

    @property
    def stdin(self) -> TextIO:
        return sys.stdin

    @property
    def interactive(self) -> bool:
        """Somebody can be asked."""
        return self.stdin.isatty() and self.err.isatty()

    @property
    def plain(self) -> bool:
        """Output for programs was asked for."""
        return self.format != "table"

    @cached_property
    def address(self) -> Address:
        """Which HAL is meant."""
        from hal.client.address import find_address

        return find_address(self.home, self.url, plain=self.unencrypted)

    @cached_property
    def client(self) -> Client:
        """A client of that HAL; connects when first used."""
        from hal.client.sync import Client

        return Client(self.address)

    def line(self, text: str = "") -> None:
        """One line of the result, whoever wrote what is in it."""
        print(_printable(text), file=self.out)

    def note(self, text: str) -> None:
        """A remark for people, on standard error."""
        if not self.quiet:
            print(_printable(text), file=self.err)

    def emit(self, value: Any) -> None:
        """A value as JSON or YAML, as asked."""
        plain = as_plain(value)
        if self.format == "yaml":
            from hal.core.model.text import yaml_from_plain

            self.out.write(yaml_from_plain(plain))
            return
        print(json_text(plain, indent=2), file=self.out)

    def item(self, value: Any) -> None:
        """One of several values, as they come: a line of JSON, which with `-` before it is an item of YAML, too."""
        print(f"{'- ' if self.format == 'yaml' else ''}{json_text(as_plain(value))}", file=self.out)

    def show(self, value: Any, render: Callable[[], None]) -> None:
        """The value for programs, or for people what `render` writes."""
        if self.plain:
            self.emit(value)
        else:
            render()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, state_column: str = "STATE") -> None:
        """A table: fitted to the window on a terminal, else aligned and never cut, for grep and awk."""
        if self.out.isatty():
            from hal.cli.tables import print_rich

            print_rich(self.out, columns, rows, state_column)
            return
        rows = [[_printable(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
        for row in (columns, *rows):
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def fields(self, pairs: Mapping[str, str]) -> None:
        """Names and values, one a line; empty ones are left out."""
        width = max((len(name) for name, text in pairs.items() if text), default=0)
        for name, text in pairs.items():
            if text:
                name = self.bold(_printable(name).ljust(width), self.out)
                print(f"{name}  {_printable(text)}", file=self.out)

    def bold(self, text: str, stream: TextIO) -> str:
        """Emphasised where colour is allowed."""
        return f"\x1b[1m{text}\x1b[0m" if colour_allowed(stream) else text

    def ask(self, question: str) -> bool:
        """A yes or no from the person; no is the default."""
        self.err.write(f"{_printable(question)} [y/N] ")
        self.err.flush()
        return self.stdin.readline().strip().lower() in ("y", "yes")


def colour_allowed(stream: TextIO) -> bool:
    """A terminal, and nobody said NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def json_text(plain: Any, *, indent: int | None = None) -> str:
    """Plain data as JSON that no terminal acts on: letters of every script as they are, all else as escapes."""
    import json

    from hal.core.model.printable import printable_json

    return printable_json(json.dumps(plain, indent=indent, ensure_ascii=False))


def as_plain(value: Any) -> Any:
    """Plain data of views, values of the model, and lists and dicts of them."""
    import msgspec

    from hal.core.model import enc_hook

    return msgspec.to_builtins(value, enc_hook=enc_hook)


def _printable(text: str) -> str:
    # Imported only once something is written: the model costs 30 ms.
    from hal.core.model.printable import printable

    return printable(text)
