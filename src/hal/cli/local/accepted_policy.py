"""A changed hal.toml that would remove entries of the policy: `hal up` shows them and asks; no restart removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hal.cli.kit.screen import Screen
    from hal.core.model.policy import Policy
    from hal.runtime.home import Home

KEEP = "to keep them, bring the file up to date: hal policy show -o toml"


def settle_policy(screen: Screen, home: Home, *, accept: bool, asks: bool) -> None:
    """Apply the file if that is accepted; HAL runs on with the policy that holds otherwise.

    Args:
        accept: without asking.
        asks: ask on a terminal; False: only say what is kept, as where nobody is there to answer.
    Raises:
        ConflictError: nobody was asked, and nobody accepted it; the message lists what the file would remove.
        SpecError: hal.toml is malformed by now.
    """
    from hal.client.addresses.address import Address
    from hal.client.rest import policy_calls
    from hal.client.sync_client import Client
    from hal.core.model import ConflictError
    from hal.core.model.policy_text import policy_to_plain

    with Client(Address(home=home)) as client:
        lost = client.health().policy_kept
        if not lost:
            return
        active = client.call(policy_calls.policy())
        if not accept:
            count = f"{len(lost)} {'entry' if len(lost) == 1 else 'entries'}"
            screen.note(f"hal.toml was changed, and would remove {count} of policy version {active.version}:")
            for one in lost:
                screen.note(f"  {one}")
            if not asks:
                screen.note(f"warning: hal.toml is not in force; to remove them: hal up --accept-policy; {KEEP}")
                return
            if screen.plain or not (screen.err.isatty() and _answers()):
                raise ConflictError(
                    f"hal.toml is not in force: it would remove {', '.join(lost)}; HAL runs with the policy as it was",
                    hint=f"to remove them: hal up --accept-policy; {KEEP}",
                )
            if not click.confirm("Apply it?", err=True):
                screen.note(f"the policy stays as it was; {KEEP}")
                return
        wanted = policy_to_plain(_declared(home, active.value))
        change = client.call(policy_calls.put_policy(wanted, version=active.version, note="hal.toml, accepted"))
        screen.note(f"hal.toml is in force: policy version {change.version}")


def _answers() -> bool:
    """Whether somebody is there to answer."""
    import sys

    return sys.stdin.isatty()


def _declared(home: Home, active: Policy) -> Policy:
    """The policy that hal.toml asks for, with what coordinators have set under the active one.

    Raises:
        SpecError: malformed.
    """
    from hal.core.model.config_sections import parse_toml
    from hal.core.model.policy import Policy
    from hal.core.model.policy_delegation import keep_delegated
    from hal.core.model.policy_text import policy_from_plain
    from hal.runtime.config_file import config_text

    raw = parse_toml(config_text(home.config))
    return keep_delegated(policy_from_plain({k: v for k, v in raw.items() if k in Policy.__struct_fields__}), active)
