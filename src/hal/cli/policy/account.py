"""`hal account`: the tree of accounts in the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from hal.cli.kit.command import HalCommand, pass_screen
from hal.cli.kit.screen import Screen
from hal.cli.policy.changes import show_change
from hal.cli.policy.entry_commands import noun
from hal.cli.policy.fields import entry_of, options
from hal.client.rest import policy_calls
from hal.core.model.policy import Account, Limit
from hal.core.model.policy_change import Kind


def _row(entry: Account) -> Mapping[str, str]:
    return {
        "parent": entry.parent,
        "weight": f"{entry.weight:g}",
        "users": ",".join(f"{user}={weight:g}" for user, weight in entry.users.items()),
        "coordinators": ",".join(entry.coordinators),
        "closed": "closed" if entry.closed else "",
        "description": entry.description,
    }


account = noun(
    Kind.ACCOUNT,
    Account,
    _row,
    text="Accounts form a tree of organisations and projects; each gets a share of what its parent gets.",
    examples="""
    hal account add science --weight 2
    hal account add physics --parent science --users alice=3
    hal account set physics --closed     # only the users that it names may use it
    """,
)

_BOUNDS = ("running", "pending", "resources", "hours", "period", "max_job", "max_nodes", "max_walltime")


def _limit(screen: Screen, /, name: str, user: str, remove: bool, note: str, **given: Any) -> None:
    fields = entry_of(Limit, given)
    if remove and fields:
        raise click.UsageError("--remove goes without bounds")
    if not remove and not fields:
        raise click.UsageError("there is nothing to limit; name a bound, such as --running, or --remove")
    call = (
        policy_calls.unlimit_user(name, user, note=note)
        if remove
        else policy_calls.limit_user(name, user, fields, note=note)
    )
    show_change(screen, screen.client.call(call))


account.add_command(
    HalCommand(
        "limit",
        callback=pass_screen(_limit),
        output=True,
        examples="""
        hal account limit physics alice --running 2
        hal account limit physics '*' --pending 100      # each user of the account
        hal account limit physics alice --remove
        """,
        help="Limit what a user of an account may use.\n\nFor the account's coordinators and admins. It can only "
        "narrow what the account's other limits allow.",
        params=[
            click.Argument(["name"], metavar="ACCOUNT"),
            click.Argument(["user"]),
            *(option for option in options(Limit) if option.name in _BOUNDS),
            click.Option(["--remove"], is_flag=True, help="Remove the limit."),
            click.Option(["--note"], metavar="TEXT", default="", help="Why, for the history."),
        ],
    )
)
