"""`hal shares`: show fair-share usage, or how much of each limit is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal.client.rest.views import LedgerInfo, ShareInfo

SHARES = ("ACCOUNT", "USER", "WEIGHT", "TARGET", "USED", "WEIGHTED-H", "FACTOR")
LIMITS = ("LIMIT", "FOR", "WHAT", "USED", "OF", "OWN")
HOUR_S = 3_600


@command(
    "shares",
    output=True,
    examples="""
    hal shares
    hal shares --limits
    hal shares -o json
    """,
)
@click.option("--limits", is_flag=True, help="Show how much of each limit is in use instead.")
@pass_screen
def shares(screen: Screen, limits: bool) -> None:
    """TARGET is the share of an account or user among its siblings, USED its part of their recent usage.

    WEIGHTED-H is the usage behind USED: hours of resources, each by its weight in the policy (by default, cores count
    1). Older usage counts less. FACTOR is the resulting fair-share factor of its jobs: 1 = nothing used, 0.5 = exactly
    its share.
    """
    if limits:
        ledgers = screen.client.ledgers()
        screen.show(ledgers, lambda: _show_limits(screen, ledgers))
        return
    found = screen.client.shares()
    screen.show(found, lambda: screen.table(SHARES, [_share(entry) for entry in found]))


def _show_limits(screen: Screen, ledgers: Sequence[LedgerInfo]) -> None:
    if ledgers:
        screen.table(LIMITS, [_limit(entry) for entry in ledgers])
    else:
        screen.note("no running job counts towards a limit; to list the limits: hal limit list")


def _share(entry: ShareInfo) -> tuple[str, ...]:
    depth = max(len(entry.path) - 1, 0)
    account = "  " * depth + (entry.path[-1] if entry.path else "(all)" if entry.user is None else "-")
    factor = f"{entry.factor:.3f}" if entry.user is not None else ""
    return (
        account,
        entry.user if entry.user is not None else "",
        f"{entry.weight:g}",
        f"{entry.target:.1%}",
        f"{entry.used:.1%}",
        f"{entry.units / HOUR_S:.4g}",
        factor,
    )


def _limit(entry: LedgerInfo) -> tuple[str, ...]:
    what = (
        "tasks at once" if entry.what == "running" else f"{entry.resource}{'-hours' if entry.what == 'hours' else ''}"
    )
    return (
        entry.limit or f"({entry.cohort})",
        entry.scope,
        what,
        _amount(entry, entry.used),
        _amount(entry, entry.limit_amount),
        _amount(entry, entry.own) if entry.own != entry.limit_amount else "",
    )


def _amount(entry: LedgerInfo, amount: int) -> str:
    from hal.core.model import format_amount

    if entry.what == "running":
        return str(amount)
    if amount >= 1 << 59:
        return "unlimited"
    return format_amount(entry.resource, amount // HOUR_S if entry.what == "hours" else amount)
