"""A click group that imports a command's file when the command is used, and names the nearest one for a typo.

The short help texts stand here, so that `hal --help` imports no command at all.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click


class Lazy(NamedTuple):
    """Where a command is, and what it does in a few words."""

    where: str
    """`module:attribute`"""
    short_help: str
    section: str


class ReaderGoneError(Exception):
    """Whoever read our output has closed it. (click would turn a BrokenPipeError into exit code 1.)"""


class UnknownCommandError(click.UsageError):
    """A command that does not exist; `hint` names the nearest."""

    def __init__(self, message: str, ctx: click.Context, hint: str) -> None:
        super().__init__(message, ctx)
        self.hint = hint


class LazyGroup(click.Group):
    """Its commands are named at the start and imported at first use."""

    def __init__(self, name: str, *, lazy: Mapping[str, Lazy], **attrs: Any) -> None:
        super().__init__(name, **attrs)
        self._lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are shown."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None when there is none."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].where.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}:{attribute} is not a command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest name in the error."""
        name = args[0]
        if name not in self._lazy and not name.startswith("-"):
            near = difflib.get_close_matches(name, self._lazy, n=1, cutoff=0.5)
            advice = f"did you mean 'hal {near[0]}'?" if near else "see: hal --help"
            raise UnknownCommandError(f"there is no command 'hal {name}'", ctx, advice)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's.

        Raises:
            ReaderGoneError: instead of BrokenPipeError.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, lazy in self._lazy.items():
            sections.setdefault(lazy.section, []).append((name, lazy.short_help))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
