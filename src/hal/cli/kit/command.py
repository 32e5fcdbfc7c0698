"""How every command is declared: `-h`, examples in its help, `--home`, `--url`, `-q`, and `-o` if it prints results.

The common options work before and after the command's name: `hal --home X jobs` is `hal jobs --home X`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

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


class UnlikelyValueError(click.BadParameter):
    """A value that an option cannot have; `hint`, if not empty, says which option was probably meant."""

    def __init__(self, message: str, ctx: click.Context | None, param: click.Parameter | None, hint: str) -> None:
        super().__init__(message, ctx, param)
        self.hint = hint


class HalCommand(click.Command):
    """A command with the common options and examples below its options."""

    def __init__(
        self,
        *args: Any,
        examples: str = "",
        output: bool = False,
        formats: Sequence[str] = FORMATS,
        offline: bool = False,
        instead: Mapping[str, str] | None = None,
        **attrs: Any,
    ) -> None:
        """As click's.

        Args:
            formats: that `-o` takes.
            offline: it needs no running HAL; its help does not name the options that choose one.
            instead: by the name of an option that people expect in vain, what to type instead.
        """
        attrs["context_settings"] = {**CONTEXT, **attrs.get("context_settings", {})}
        super().__init__(*args, **attrs)
        self.examples = inspect.cleandoc(examples)
        self.instead = instead or {}
        self.params.extend(place_options(hidden=offline) + (output_options(formats) if output else []))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """As click's; while a shell completes, they complete names that HAL knows."""
        params = super().get_params(ctx)
        if ctx.resilient_parsing:
            from hal.cli.kit.value_completion import complete_values

            for param in params:
                complete_values(param)
        return params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's.

        Raises:
            UnknownOptionError: instead of click's.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UnknownOptionError(error, self._hint(error.option_name)) from None

    def get_short_help_str(self, limit: int = 45) -> str:
        """As click's, but a sentence that is too long ends at a pause rather than in dots."""
        short = super().get_short_help_str(limit)
        if not short.endswith("..."):
            return short
        at = max(short.rfind(":"), short.rfind(";"))
        at = at if at > 0 else short.rfind(",")
        return f"{short[:at]}." if at > 0 else short

    def _hint(self, option: str) -> str:
        """What to type instead of an option that does not exist; '' if only its spelling can say."""
        from hal.cli.kit.synonyms import option_hint

        known = {name for parameter in self.params for name in parameter.opts}
        return self.instead.get(option, "") or option_hint(option, known)

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


def place_options(*, hidden: bool = False) -> list[click.Parameter]:
    """Which HAL to talk to, and whether to print notes.

    Args:
        hidden: the help does not name those that choose a HAL.
    """
    return [
        click.Option(
            ["--home"],
            metavar="DIR",
            callback=_keep("home"),
            hidden=hidden,
            expose_value=False,
            help="Home directory of the HAL to use (default: $HAL_HOME, else ~/.local/state/hal).",
        ),
        click.Option(
            ["--url"],
            metavar="URL",
            callback=_keep("url"),
            hidden=hidden,
            expose_value=False,
            help="Use the HAL at https://HOST:PORT or unix:///PATH, with the token in $HAL_TOKEN (default: $HAL_URL).",
        ),
        click.Option(
            ["--plain"],
            is_flag=True,
            callback=_keep("unencrypted"),
            hidden=hidden,
            expose_value=False,
            help="Allow unencrypted http:// to other machines (default: $HAL_PLAIN).",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            callback=_keep("quiet"),
            is_eager=True,  # before other options of which something is noted
            expose_value=False,
            help="Print no notes on stderr.",
        ),
    ]


def output_options(formats: Sequence[str] = FORMATS) -> list[click.Parameter]:
    """The format of results."""
    return [
        click.Option(
            ["-o", "--output"],
            type=_Format(formats),
            callback=_keep("format"),
            expose_value=False,
            help="Output format (default: table).",
        ),
        click.Option(["--json"], is_flag=True, callback=_json, expose_value=False, help="Same as -o json."),
    ]


class _Format(click.Choice[str]):
    """A format of results; whoever types a file there means another option."""

    def fail(self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> NoReturn:
        """As click's, with a word about files where the command has some."""
        others = [other for other in ctx.command.params if isinstance(other, click.Option)] if ctx is not None else []
        names = [max(other.opts, key=len) for other in others if (other.metavar or "").startswith("FILE")]
        hint = f"a file is named with {' or '.join(names)}" if names else ""
        if "--stdout" in names:
            hint = "the output of a job goes to --stdout FILE"
        raise UnlikelyValueError(message, ctx, param, hint)


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
