"""Where a command prints, in which format, and which HAL it talks to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from hal.cli.kit.colours import colour_allowed

if TYPE_CHECKING:
    from hal.client.addresses.address import Address
    from hal.client.sync_client import Client

T = TypeVar("T")

FORMATS = ("table", "json", "yaml")


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
        """Whether somebody can be asked."""
        return self.stdin.isatty() and self.err.isatty()

    @property
    def plain(self) -> bool:
        """Whether output for programs (JSON or YAML) was asked for."""
        return self.format != "table"

    @cached_property
    def address(self) -> Address:
        """The HAL to talk to."""
        from hal.client.address_lookup import find_address

        return find_address(self.home, self.url, plain=self.unencrypted)

    @cached_property
    def client(self) -> Client:
        """A client of that HAL; connects when first used."""
        from hal.client.sync_client import Client

        return Client(self.address)

    def close(self) -> None:
        """Close the client's connections, if there are any: who calls `main` as a function goes on without them."""
        if (client := self.__dict__.get("client")) is not None:
            client.close()

    def line(self, text: str = "") -> None:
        """Print one line of the result, with control characters made visible."""
        print(_printable(text), file=self.out)

    def note(self, text: str) -> None:
        """Print a note for people on standard error."""
        if not self.quiet:
            print(_printable(text), file=self.err)

    def emit(self, value: Any) -> None:
        """Print a value as JSON or YAML, whichever was asked for."""
        plain = as_plain(value)
        if self.format == "yaml":
            from hal.core.model.text import yaml_from_plain

            self.out.write(yaml_from_plain(plain))
            return
        print(json_text(plain, indent=2), file=self.out)

    def item(self, value: Any) -> None:
        """Print one of several values as it comes: a line of JSON, which behind `- ` is an item of YAML, too."""
        print(f"{'- ' if self.format == 'yaml' else ''}{json_text(as_plain(value))}", file=self.out)

    def show(self, value: Any, render: Callable[[], None]) -> None:
        """Print the value for programs, or call `render` to print it for people."""
        if self.plain:
            self.emit(value)
        else:
            render()

    def show_list(
        self, found: Sequence[T], columns: Sequence[str], cells: Callable[[T], Sequence[str]], otherwise: str
    ) -> None:
        """Print entries for programs, or a table of them for people.

        Args:
            cells: of the row of an entry.
            otherwise: the note where there is none: what to do next.
        """

        def render() -> None:
            if found:
                self.table(columns, [cells(one) for one in found])
            else:
                self.note(otherwise)

        self.show(found, render)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, state_column: str = "STATE") -> None:
        """Print a table: fitted to the window on a terminal, else aligned and never cut, for grep and awk."""
        if self.out.isatty():
            from hal.cli.kit.tables import print_rich

            print_rich(self.out, columns, rows, state_column)
            return
        rows = [[_printable(cell) for cell in row] for row in rows]
        widths = [max(_width(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
        for row in (columns, *rows):
            cells = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
            self.line("  ".join(cells).rstrip())

    def fields(self, pairs: Mapping[str, str]) -> None:
        """Print names and values, one pair a line; empty values are left out."""
        width = max((len(name) for name, text in pairs.items() if text), default=0)
        for name, text in pairs.items():
            if text:
                name = self.bold(_printable(name).ljust(width), self.out)
                print(f"{name}  {_printable(text)}", file=self.out)

    def bold(self, text: str, stream: TextIO) -> str:
        """The text in bold where colour is allowed."""
        return f"\x1b[1m{text}\x1b[0m" if colour_allowed(stream) else text

    def ask(self, question: str) -> bool:
        """Ask a yes-or-no question; the default is no."""
        self.err.write(f"{_printable(question)} [y/N] ")
        self.err.flush()
        return self.stdin.readline().strip().lower() in ("y", "yes")


def json_text(plain: Any, *, indent: int | None = None) -> str:
    """Plain data as JSON that is harmless on a terminal: letters of every script unchanged, all else as escapes."""
    import json

    from hal.core.model.printable import printable_json

    return printable_json(json.dumps(plain, indent=indent, ensure_ascii=False))


def as_plain(value: Any) -> Any:
    """Plain data of views, values of the model, and lists and dicts of them."""
    import msgspec

    from hal.core.model import enc_hook

    return msgspec.to_builtins(value, enc_hook=enc_hook)


def _width(text: str) -> int:
    """How many columns of a terminal a text takes: a wide letter takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _printable(text: str) -> str:
    # Imported only once something is written: the model costs 30 ms.
    from hal.core.model.printable import printable

    return printable(text)
