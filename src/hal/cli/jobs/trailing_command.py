"""Commands of the form `hal VERB [options] -- COMMAND…`: the words after `--` are kept apart, unread."""

from __future__ import annotations

import itertools
import os
from typing import Any

import click

from hal.cli.kit.command import HalCommand, UnlikelyValueError

_KEY = "hal.trailing_command"


class TrailingCommand(HalCommand):
    """Splits its arguments at the first `--` before click sees them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, for the words before `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            args = args[:at]
        _refuse_slurms_q(ctx, args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """As click's, with `--`."""
        return [*filter(None, super().collect_usage_pieces(ctx)), "-- COMMAND..."]


def trailing_command(ctx: click.Context) -> list[str] | None:
    """The words after `--`; None when there is no `--`."""
    found: Any = ctx.meta.get(_KEY)
    return None if found is None else list(found)


def _refuse_slurms_q(ctx: click.Context, args: list[str]) -> None:
    """Refuse `-q NAME`: HAL's -q is a flag, so the name would be a file to submit or a program to run.

    Raises:
        UnlikelyValueError: what follows -q is neither.
    """
    for option, word in itertools.pairwise(args):
        if option == "-q" and is_name_alone(word) and not os.path.exists(word) and not _is_program(word):
            hint = f"-q prints no notes; the queue is -Q {word}, the QOS --qos {word}"
            raise UnlikelyValueError(f"-q: '{word}' is neither a file nor a program", ctx, None, hint)


def _is_program(word: str) -> bool:
    import shutil

    return shutil.which(word) is not None


def is_name_alone(word: str) -> bool:
    """Whether it could be the name of a queue: neither an option nor the path of a file."""
    return word.replace("-", "").replace("_", "").isalnum() and not word.startswith("-")
