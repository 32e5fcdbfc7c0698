"""Commands of the form `hal VERB [options] -- COMMAND…`: what stands behind `--` is kept apart, untouched."""

from __future__ import annotations

from typing import Any

import click

from hal.cli.command import HalCommand

_KEY = "hal.after_dashes"


class DashesCommand(HalCommand):
    """Splits its arguments at the first `--` before click sees them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, for what stands before `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """As click's, with `--`."""
        return [*filter(None, super().collect_usage_pieces(ctx)), "-- COMMAND..."]


def after_dashes(ctx: click.Context) -> list[str] | None:
    """The words behind `--`; None when there was none."""
    found: Any = ctx.meta.get(_KEY)
    return None if found is None else list(found)
