"""`hal policy`: the policy as a whole, its history and its other versions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from hal.cli.kit.command import HalCommand, command, pass_screen
from hal.cli.kit.formats import instant
from hal.cli.kit.input_files import format_of, read_text, settings_of
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import FORMATS, Screen
from hal.cli.policy.changes import change_options, show_change, show_differences
from hal.cli.policy.policy_files import policy_in
from hal.cli.policy.remarks import remark_on_changes
from hal.client.rest import policy_calls
from hal.client.rest.policy_views import PolicyDifference, PolicyInfo
from hal.core.model import SpecError
from hal.core.model.policy import Policy
from hal.core.model.policy_change import TABLE, Do, Kind, Operation, apply_operations, differences, removals
from hal.core.model.policy_text import policy_to_plain, policy_to_toml
from hal.core.model.text import plain_from_text, yaml_from_plain
from hal.runtime.config_file import is_anothers

_KINDS = {table: kind for kind, table in TABLE.items()} | {"licences": Kind.LICENCE}

policy = NounGroup(
    "policy",
    help="Entries of the policy are changed by `hal queue`, `account`, `qos`, `limit` and `booking`.",
    epilog="Example: hal policy apply hal.toml --dry-run",
)


@command(
    "show",
    output=True,
    examples="""
    hal policy show
    hal policy show 3 --json
    hal policy show -o toml > hal.toml      # the policy part of a hal.toml
    """,
    formats=(*FORMATS, "toml"),
)
@click.argument("version", type=int, required=False)
@pass_screen
def show(screen: Screen, version: int | None) -> None:
    """Show the active policy, or another version of it."""
    found = screen.client.call(policy_calls.policy(version))
    if screen.format == "toml":
        screen.out.write(policy_to_toml(found.value))
        return

    def render() -> None:
        who = f" by {found.user}" if found.user else " from hal.toml"
        note = f": {found.note}" if found.note else ""
        screen.note(f"version {found.version}, {instant(found.at_ms)}{who}{note}")
        screen.out.write(yaml_from_plain(found.policy))

    screen.show(found, render)


@command("history", output=True, examples="hal policy history")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Most versions to list."
)
@pass_screen
def history(screen: Screen, limit: int) -> None:
    """List the versions of the policy, newest first."""
    call = policy_calls.policy_versions
    found = list(screen.client.paged(lambda size, cursor: call(limit=size, cursor=cursor), limit))
    rows = [(str(one.version), instant(one.at_ms), one.user or "hal.toml", one.note) for one in found]
    screen.show(found, lambda: screen.table(("VERSION", "WHEN", "USER", "NOTE"), rows))


@command(
    "diff",
    output=True,
    examples="""
    hal policy diff 3             # from version 3 to the active one
    hal policy diff 3 5
    hal policy diff hal.toml      # from the active policy to the file
    """,
)
@click.argument("which", metavar="VERSION|FILE...", nargs=-1, required=True)
@pass_screen
def diff(screen: Screen, which: Sequence[str]) -> None:
    """Compare two versions, or the active policy and a file."""
    if len(which) > 2:
        raise click.UsageError("at most two versions or files can be compared")
    sides = [_read(screen, one) for one in which]
    if len(sides) == 1:
        holds = screen.client.call(policy_calls.policy()).value
        sides = [sides[0], holds] if which[0].isdigit() else [holds, sides[0]]
    found = [
        PolicyDifference(entry=one.entry, field=one.field, before=one.before, after=one.after)
        for one in differences(*sides)
    ]

    def render() -> None:
        show_differences(screen, found)
        if not found:
            screen.note("there is no difference")

    screen.show(found, render)


@pass_screen
def _apply(screen: Screen, file: str, dry_run: bool, note: str | None, yes: bool) -> None:
    before, wanted = screen.client.call(policy_calls.policy()), _read_file(file)
    if not (dry_run or yes) and not _may_remove(screen, file, removals(differences(before.value, wanted))):
        screen.note(f"nothing was changed: version {before.version} of the policy is still active")
        return
    _put(screen, before, wanted, dry_run=dry_run, note=note or f"applied {file}")


def _may_remove(screen: Screen, file: str, lost: Sequence[str]) -> bool:
    """Show what the file would take away, and ask; True where it takes away nothing.

    Raises:
        click.UsageError: there is nobody to ask.
    """
    if not lost:
        return True
    if not screen.interactive:
        raise click.UsageError(
            f"{file} would remove {', '.join(lost)}; add --yes to remove that (--dry-run shows every change)"
        )
    count = f"{len(lost)} {'entry' if len(lost) == 1 else 'entries'}"
    screen.note(f"{file} would remove {count} of the policy:")
    for one in lost:
        screen.note(f"  {one}")
    return screen.ask("apply it?")


@pass_screen
def _rollback(screen: Screen, version: int, dry_run: bool, note: str | None) -> None:
    before = screen.client.call(policy_calls.policy())
    old = screen.client.call(policy_calls.policy(version))
    _put(screen, before, old.value, dry_run=dry_run, note=note or f"rolled back to version {version}")


@pass_screen
def _set(screen: Screen, settings: Sequence[str], dry_run: bool, note: str | None) -> None:
    before = screen.client.call(policy_calls.policy())
    operations = [_operation(path, value, before.value) for path, value in settings_of(settings).items()]
    call = policy_calls.change_policy(operations, version=before.version, dry_run=dry_run, note=note or "")
    change = screen.client.call(call)
    show_change(screen, change)
    remark_on_changes(screen, change.changes, lambda: apply_operations(before.value, operations))


def _put(screen: Screen, before: PolicyInfo, wanted: Policy, *, dry_run: bool, note: str) -> None:
    call = policy_calls.put_policy(policy_to_plain(wanted), version=before.version, dry_run=dry_run, note=note)
    change = screen.client.call(call)
    show_change(screen, change)
    remark_on_changes(screen, change.changes, lambda: wanted)


def _operation(path: str, value: Any, before: Policy) -> Operation:
    """`weights.age=2`, `licences.matlab=10`, `queues.short.priority=3` as operations on one entry."""
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no infinity: it would arrive as null
        raise SpecError(f"{path}: '{value}' is not a number")
    table, _, rest = path.partition(".")
    if table in ("weights", "fairshare") and rest:
        first, _, inner = rest.partition(".")
        if first == "charge" and inner:
            value = {**before.fairshare.charge, inner: value}
        return Operation(op=Do.SET, kind=Kind(table), entry={first: value})
    if table == "licences" and rest:
        return Operation(op=Do.PUT, kind=Kind.LICENCE, name=rest, entry={"total": value})
    name, dot, field = rest.rpartition(".")
    if table in _KINDS and dot and name and field:
        return Operation(op=Do.SET, kind=_KINDS[table], name=name, entry={field: value})
    raise SpecError(
        f"'{path}' is not a setting of the policy",
        hint="write, for example, weights.age, licences.matlab or queues.short.priority",
    )


def _read(screen: Screen, which: str) -> Policy:
    if which.isascii() and which.isdigit():
        return screen.client.call(policy_calls.policy(int(which))).value
    return _read_file(which)


def _read_file(name: str) -> Policy:
    text = read_text(name)
    try:
        raw = plain_from_text(text, kind=format_of(name, text, None))
        if isinstance(raw, dict):
            raw = {key: value for key, value in raw.items() if not _is_other_section(key)}
        return policy_in(raw)
    except SpecError as error:
        raise SpecError(f"{name}: {error.message}", hint=error.hint) from error


def _is_other_section(name: str) -> bool:
    """Whether it is a section of a hal.toml that is no part of the policy."""
    if name in Policy.__struct_fields__:
        return False
    from hal.daemons.controller.config_sections import (
        SECTIONS,
    )  # imports the store: only where a file has such a section

    return any(section.name == name for section in SECTIONS) or is_anothers(name)


policy.add_command(show)
policy.add_command(history)
policy.add_command(diff)
policy.add_command(
    HalCommand(
        "apply",
        callback=_apply,
        output=True,
        help="Replace the policy with a file.\n\nFILE is TOML, YAML or JSON; it may be a whole hal.toml. If it lacks "
        "entries that there are, or bounds of limits, they are shown, and removed only after confirmation.",
        examples="hal policy apply policy.toml --dry-run\nhal policy apply policy.toml --note 'spring term'\n"
        "hal policy apply policy.toml --yes      # also if that removes entries",
        params=[
            click.Argument(["file"]),
            *change_options(),
            click.Option(["-y", "--yes"], is_flag=True, help="Do not ask for confirmation."),
        ],
    )
)
policy.add_command(
    HalCommand(
        "rollback",
        callback=_rollback,
        output=True,
        help="Go back to an old version.\n\nWhat VERSION contains becomes the newest version.",
        examples="hal policy rollback 3",
        params=[click.Argument(["version"], type=int), *change_options()],
    )
)
policy.add_command(
    HalCommand(
        "set",
        callback=_set,
        output=True,
        help="Change single settings.\n\nA PATH names a setting as in hal.toml.",
        examples="hal policy set weights.age=2 licences.matlab=10\nhal policy set fairshare.half_life=14d",
        params=[click.Argument(["settings"], metavar="PATH=VALUE...", nargs=-1, required=True), *change_options()],
    )
)
