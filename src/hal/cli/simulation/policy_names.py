"""What `hal simulate --policy` names: built-in policies, installed ones, and files with a whole policy."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

if TYPE_CHECKING:
    from hal.daemons.twin.named_policies import NamedPolicy

MAX_POLICIES: Final = 20
"""Replays of one command."""
FILE_SUFFIXES: Final = (".toml", ".json", ".yaml", ".yml")
"""What ends like this, or has a slash in it, is a file."""


class Entry(NamedTuple):
    """One policy to replay under, by the name that was typed."""

    name: str
    known: NamedPolicy | None
    """None: it is a file."""

    @property
    def is_file(self) -> bool:
        """Whether it is a whole policy of a file."""
        return self.known is None

    @property
    def policy(self) -> NamedPolicy:
        """Of what is no file."""
        assert self.known is not None, self.name
        return self.known


def read_policies(typed: Sequence[str], configs: Sequence[str], default: Sequence[str]) -> list[Entry]:
    """What --policy and --config name, in the order given, without duplicates.

    Args:
        default: names where nothing is given.
    Raises:
        click.BadParameter: a policy that does not exist, or too many.
        SpecError: an installed policy cannot be used.
    """
    names = [name.strip() for text in typed for name in text.split(",")]
    names = list(dict.fromkeys([*names, *configs])) or list(default)
    if len(names) > MAX_POLICIES:
        raise click.BadParameter(
            f"{len(names)} policies; at most {MAX_POLICIES} can be compared at once",
            param_hint="--policy" if typed else "--config",
        )
    files = frozenset(name for name in names if name in configs or name.endswith(FILE_SUFFIXES) or "/" in name)
    return [Entry(name, None if name in files else _known(name)) for name in names]


def load_installed() -> None:
    """Policies of other packages can be named from now on."""
    from hal.daemons.controller.startup.plugins import load_policies

    load_policies()


def _known(name: str) -> NamedPolicy:
    from hal.daemons.twin.machine import POLICIES
    from hal.daemons.twin.named_policies import built_in, registered

    found = built_in(name)
    if found is None and name:
        load_installed()
        found = registered(name)
    if found is None:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise click.BadParameter(
            f"unknown policy {name!r}{hint}; valid are {', '.join(POLICIES)}, top-K with a number, such as top-2, "
            "an installed Order, Score or Filter, and files (hal.toml)",
            param_hint="--policy",
        )
    return found
