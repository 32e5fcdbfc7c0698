"""How every command is declared: `-h`, examples in its help, `--home`, `--url`, `-q`, and `-o` if it prints results.

The common options work before and after the command's name: `hal --home X jobs` is `hal jobs --home X`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import click

from hal.cli.kit.screen import FORMATS, Screen

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "auto_envvar_prefix": None}

pass_screen = click.make_pass_decorator(Screen, ensure=True)

Function = Callable[..., Any]


class UnknownOptionError(click.NoSuchOption):
    """An option that does not exist; `hint`, if not empty, says what to type instead."""

    def __init__(self, error: click.NoSuchOption, hint: str) -> None:
        wanted = error.option_name.lstrip("-")
        # click compares names with their dashes, which makes all short ones look alike.
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
        """As click's. instead: by the name of an option that people expect in vain, what to type instead."""
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
        examples: lines to type, each with what it does after `#`.
        output: whether it prints results, and so takes `-o` and `--json`.
        attrs: as click's.
    """
    return click.command(name, cls=HalCommand, examples=examples, output=output, **attrs)


def place_options() -> list[click.Parameter]:
    """Which HAL to talk to, and whether to print notes."""
    return [
        click.Option(
            ["--home"],
            metavar="DIR",
            callback=_keep("home"),
            expose_value=False,
            help="Home directory of the HAL to use (default: $HAL_HOME, else ~/.local/state/hal).",
        ),
        click.Option(
            ["--url"],
            metavar="URL",
            callback=_keep("url"),
            expose_value=False,
            help="Use the HAL at https://HOST:PORT, with the token in $HAL_TOKEN (default: $HAL_URL).",
        ),
        click.Option(
            ["--plain"],
            is_flag=True,
            callback=_keep("unencrypted"),
            expose_value=False,
            help="Allow unencrypted http:// to other machines (default: $HAL_PLAIN).",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            callback=_keep("quiet"),
            expose_value=False,
            help="Print no notes on stderr.",
        ),
    ]


def output_options() -> list[click.Parameter]:
    """The format of results."""
    return [
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            callback=_keep("format"),
            expose_value=False,
            help="Output format (default: table).",
        ),
        click.Option(["--json"], is_flag=True, callback=_json, expose_value=False, help="Same as -o json."),
    ]


def _keep(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Screen), field, value)

    return callback


def _json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Screen).format = "json"


COMMON = frozenset(option.name for option in place_options() + output_options())
"""Names of the parameters that every command, or every one that prints results, has."""
