"""Options of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

import click


def pairs(option: str, entries: Sequence[str]) -> dict[str, str]:
    """Read `['a=1', 'b=2,c=3']` as a dict.

    Raises:
        click.UsageError: an entry has no `=`, or a name is given twice.
    """
    out: dict[str, str] = {}
    for entry in (part.strip() for text in entries for part in text.split(",")):
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option}: '{entry}' is not NAME=VALUE")
        if key in out:
            raise click.UsageError(f"{option}: '{key}' is given twice")
        out[key] = value
    return out
