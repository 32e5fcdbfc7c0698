"""Commands of the form `hal VERB [options] -- COMMAND…`: the words after `--` are kept apart, unread."""

from __future__ import annotations

from typing import Any

import click

from hal.cli.kit.command import HalCommand

_KEY = "hal.trailing_command"


class TrailingCommand(HalCommand):
    """Splits its arguments at the first `--` before click sees them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, for the words before `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """As click's, with `--`."""
        return [*filter(None, super().collect_usage_pieces(ctx)), "-- COMMAND..."]


def trailing_command(ctx: click.Context) -> list[str] | None:
    """The words after `--`; None when there is no `--`."""
    found: Any = ctx.meta.get(_KEY)
    return None if found is None else list(found)
