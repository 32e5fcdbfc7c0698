"""How every command is declared: `-h`, examples in the help, `--home`, `--url`, `-q`, and where it prints results `-o`.

The common options work before and after the command's name: `hal --home X jobs` is `hal jobs --home X`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import click

from hal.cli.screen import FORMATS, Screen

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "auto_envvar_prefix": None}

pass_screen = click.make_pass_decorator(Screen, ensure=True)

Function = Callable[..., Any]


class UnknownOptionError(click.NoSuchOption):
    """An option that does not exist; `hint`, where not empty, says what to type instead."""

    def __init__(self, error: click.NoSuchOption, hint: str) -> None:
        wanted = error.option_name.lstrip("-")
        # click compares with the dashes, which makes every short name near to every other one.
        near = difflib.get_close_matches(wanted, [name.lstrip("-") for name in error.possibilities or ()])
        names = [name for name in error.possibilities or () if name.lstrip("-") in near]
        super().__init__(error.option_name, possibilities=[] if hint else names, ctx=error.ctx)
        self.hint = hint


class HalCommand(click.Command):
    """A command with the common options and examples below its options."""

    def __init__(
        self,
        *args: Any,
        examples: str = "",
        output: bool = False,
        instead: Mapping[str, str] | None = None,
        **attrs: Any,
    ) -> None:
        """As click's. instead: what to type in place of options that people look for in vain, by their names."""
        attrs["context_settings"] = {**CONTEXT, **attrs.get("context_settings", {})}
        super().__init__(*args, **attrs)
        self.examples = inspect.cleandoc(examples)
        self.instead = instead or {}
        self.params.extend(place_options() + (output_options() if output else []))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's.

        Raises:
            UnknownOptionError: instead of click's.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UnknownOptionError(error, self.instead.get(error.option_name, "")) from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, as they are."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.splitlines():
                    formatter.write(f"  {line}\n" if line else "\n")


def command(name: str, *, examples: str, output: bool = False, **attrs: Any) -> Callable[[Function], HalCommand]:
    """Declare a command.

    Args:
        name: as people type it.
        examples: lines to type, with what they do after `#`.
        output: it prints results, so it takes `-o` and `--json`.
        attrs: as click's.
    """
    return click.command(name, cls=HalCommand, examples=examples, output=output, **attrs)


def place_options() -> list[click.Parameter]:
    """Which HAL, and how talkative."""
    return [
        click.Option(
            ["--home"],
            metavar="DIR",
            callback=_keep("home"),
            expose_value=False,
            help="The HAL_HOME of the HAL to speak to (default: $HAL_HOME, else ~/.local/state/hal).",
        ),
        click.Option(
            ["--url"],
            metavar="URL",
            callback=_keep("url"),
            expose_value=False,
            help="A HAL elsewhere: https://HOST:PORT, token in $HAL_TOKEN (default: $HAL_URL).",
        ),
        click.Option(
            ["--plain"],
            is_flag=True,
            callback=_keep("unencrypted"),
            expose_value=False,
            help="Let http:// send token and jobs to other machines, too (default: $HAL_PLAIN).",
        ),
        click.Option(
            ["-q", "--quiet"], is_flag=True, callback=_keep("quiet"), expose_value=False, help="No remarks on stderr."
        ),
    ]


def output_options() -> list[click.Parameter]:
    """The form of results."""
    return [
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            callback=_keep("format"),
            expose_value=False,
            help="Form of the output (default: table).",
        ),
        click.Option(["--json"], is_flag=True, callback=_json, expose_value=False, help="Short for -o json."),
    ]


def _keep(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Screen), field, value)

    return callback


def _json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Screen).format = "json"
