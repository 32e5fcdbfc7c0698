"""`hal access`: why somebody may do what they may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.access_calls import AccessInfo

access = NounGroup(
    "access",
    help="Rights come from roles, tokens, and what the policy delegates.",
    epilog="Example: hal access show --user alice",
)


@command(
    "show",
    output=True,
    examples="""
    hal access show                # your own
    hal access show --user alice   # for operators
    """,
)
@click.option("--user", metavar="NAME", default="", help="Whose rights (default: your own).")
@pass_screen
def show(screen: Screen, user: str) -> None:
    """Show each right of a user, the rule that gives it, and the limits that hold for their jobs."""
    found = screen.client.access(user)
    screen.show(found, lambda: _render(screen, found))


def _render(screen: Screen, found: AccessInfo) -> None:
    screen.fields({"User": found.user, "Role": found.role or "none, but what a token says"})
    if found.grants:
        rows = [(one.right, one.source, one.rule, one.applies) for one in found.grants]
        screen.table(("RIGHT", "FROM", "RULE", "APPLIES TO"), rows)
    if found.queues:
        queues = [(one.name, "yes" if one.may_submit else "no", one.why) for one in found.queues]
        screen.table(("QUEUE", "MAY SUBMIT", "WHY"), queues)
    if found.accounts:
        columns = ("ACCOUNT", "MAY SUBMIT", "WHY", "COORDINATOR THROUGH")
        accounts = [
            (one.name, "yes" if one.may_submit else "no", one.why, one.coordinator_through or "-")
            for one in found.accounts
        ]
        screen.table(columns, accounts)
    if found.limits:
        limits = [(one.name, _pairs(one.scope) or "everything", _pairs(one.bounds), one.set_by) for one in found.limits]
        screen.table(("LIMIT", "SCOPE", "BOUNDS", "SET BY"), limits)
    if found.more:
        screen.note(f"{found.more} queues, accounts and limits are not listed")


def _pairs(of: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {_pairs(value).replace(' ', '=') if isinstance(value, dict) else value}" for name, value in of.items()
    )


access.add_command(show)
