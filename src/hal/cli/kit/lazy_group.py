"""Click groups with aliases and hints for typos; the root one imports a command's file only when the command is used.

The root's table holds the first sentence of each command's help, so that `hal --help` imports no command at all.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from hal.cli.kit.command import CONTEXT


class Lazy(NamedTuple):
    """A command that is imported when it is used."""

    where: str
    """`module:attribute`"""
    summary: str
    """First sentence of the command's help, and its line in the list of commands."""
    section: str


class ReaderGoneError(Exception):
    """The reader of our output has closed it. (click would turn a BrokenPipeError into exit code 1.)"""


class UnknownCommandError(click.UsageError):
    """A command that does not exist; `hint` names the nearest."""

    def __init__(self, message: str, ctx: click.Context, hint: str) -> None:
        super().__init__(message, ctx)
        self.hint = hint


class NounGroup(click.Group):
    """Commands on one kind of thing; old spellings work and are not listed, a typo gets the nearest name."""

    def __init__(self, name: str, *, aliases: Mapping[str, str] | None = None, **attrs: Any) -> None:
        """As click's. aliases: hidden name -> name of the command that it stands for."""
        attrs["context_settings"] = {**CONTEXT, **attrs.get("context_settings", {})}
        super().__init__(name, **attrs)
        self._aliases = dict(aliases or {})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name or alias; None when there is none."""
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest name in the error.

        Raises:
            UnknownCommandError: there is no such command.
        """
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and name not in self._aliases and not name.startswith("-"):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            path = ctx.command_path
            spelled = f"did you mean '{path} {near[0]}'?" if near else f"see {path} --help"
            advice = self.meaning_of(args) or spelled
            raise UnknownCommandError(f"there is no command '{path} {name}'", ctx, advice)
        return super().resolve_command(ctx, args)

    def meaning_of(self, words: list[str]) -> str:
        """What to type instead of words whose meaning is known and which are no command; '' if only spelling helps."""
        return ""


class LazyGroup(NounGroup):
    """Its commands are named at the start and imported at first use."""

    def __init__(self, name: str, *, lazy: Mapping[str, Lazy], **attrs: Any) -> None:
        super().__init__(name, **attrs)
        self._lazy = dict(lazy)

    def meaning_of(self, words: list[str]) -> str:
        """By what other schedulers and shells call it."""
        from hal.cli.kit.synonyms import command_hint

        return command_hint(words)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are shown."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None when there is none."""
        if cmd_name not in self._lazy:
            return None
        lazy = self._lazy[cmd_name]
        module, _, attribute = lazy.where.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}:{attribute} is not a command")
        if found.short_help is None:  # once: a command is resolved more often than it is imported
            found.help = f"{lazy.summary}\n\n{inspect.cleandoc(found.help or '')}".strip()
            found.short_help = lazy.summary
        return found

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
            sections.setdefault(lazy.section, []).append((name, lazy.summary))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
