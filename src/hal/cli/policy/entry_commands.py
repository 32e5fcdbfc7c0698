"""`hal queue`, `hal account` …: list, show, add, set and remove for each kind of named entry of the policy.

Every kind is one table of columns; the options of `add` and `set` are the fields of its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from msgspec import Struct

from hal.cli.kit.command import HalCommand, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen
from hal.cli.policy.changes import change_options, show_change, written
from hal.cli.policy.error_texts import in_options
from hal.cli.policy.fields import entry_of, option_name, options
from hal.client.rest import policy_calls
from hal.core.model import HALError, NotFoundError, to_plain
from hal.core.model.policy_change import TABLE, Do, Kind, Operation, known_text
from hal.core.model.policy_check import near

Row = Callable[[Any], Mapping[str, str]]
"""The cells of one entry by column, beside its name."""
ONE: Mapping[Kind, str] = {
    Kind.QUEUE: "a queue",
    Kind.ACCOUNT: "an account",
    Kind.QOS: "a QOS",
    Kind.LIMIT: "a limit",
    Kind.BOOKING: "a booking",
    Kind.GATE: "a gate",
}
"""One entry of each kind, with its article, for sentences."""
MANY: Mapping[Kind, str] = {
    Kind.QUEUE: "queues",
    Kind.ACCOUNT: "accounts",
    Kind.QOS: "QOS",
    Kind.LIMIT: "limits",
    Kind.BOOKING: "bookings",
    Kind.GATE: "gates",
}
"""Several entries of each kind, for sentences."""
Remark = Callable[[Screen, Operation], None]
"""Prints notes about the fields that were given."""


def noun(
    kind: Kind, entry: type[Struct], row: Row, *, text: str, examples: str, remark: Remark | None = None
) -> click.Group:
    """Make the group of commands for one kind of entry.

    Args:
        entry: the struct of its fields.
        row: the cells of one entry in the list.
        text: what such an entry is, for the help.
        examples: lines to type.
        remark: called after a change, to note what the user may not have meant.
    """
    group = NounGroup(kind.value, aliases={"rm": "remove"}, help=text, epilog=_epilog(examples))
    changes = (_add(kind, entry, examples, remark), _set(kind, entry, examples, remark))
    for made in (_list(kind, row), _show(kind), *changes, _remove(kind)):
        group.add_command(made)
    return group


def _list(kind: Kind, row: Row) -> click.Command:
    @click.command("list", cls=HalCommand, output=True, examples=f"hal {kind} list")
    @pass_screen
    def command(screen: Screen) -> None:
        entries = getattr(screen.client.call(policy_calls.policy()).value, TABLE[kind])
        rows = [{"NAME": name, **row(entry)} for name, entry in sorted(entries.items())]

        def render() -> None:
            if not rows:
                screen.note(f"there is no {_word(kind)}; add one: hal {kind} add NAME")
                return
            # A column without any value is left out.
            columns = [name for name in rows[0] if name == "NAME" or any(one[name] for one in rows)]
            screen.table([name.upper() for name in columns], [[one[name] or "-" for name in columns] for one in rows])

        screen.show([{"name": name, **to_plain(entry)} for name, entry in sorted(entries.items())], render)

    command.help = f"List {MANY[kind]} and their settings."
    return command


def _show(kind: Kind) -> click.Command:
    @click.command("show", cls=HalCommand, output=True, examples=f"hal {kind} show NAME")
    @click.argument("name")
    @pass_screen
    def command(screen: Screen, name: str) -> None:
        entries = getattr(screen.client.call(policy_calls.policy()).value, TABLE[kind])
        if name not in entries:
            raise NotFoundError(f"there is no {kind} '{name}'{near(name, entries)}", hint=known_text(kind, entries))
        plain = {"name": name, **to_plain(entries[name])}
        screen.show(plain, lambda: screen.fields({field: written(field, value) for field, value in plain.items()}))

    command.help = f"Show {ONE[kind]}.\n\nOnly settings that differ from their defaults are shown."
    return command


def _add(kind: Kind, entry: type[Struct], examples: str, remark: Remark | None) -> click.Command:
    def callback(screen: Screen, /, name: str, **given: Any) -> None:
        fields = entry_of(entry, given)
        _change(screen, Operation(op=Do.ADD, kind=kind, name=name, entry=fields), given, remark)

    text = f"Add {ONE[kind]}.\n\nSettings that are not given have their defaults."
    return _changing("add", kind, callback, options(entry), text, examples)


def _set(kind: Kind, entry: type[Struct], examples: str, remark: Remark | None) -> click.Command:
    def callback(screen: Screen, /, name: str, **given: Any) -> None:
        fields = entry_of(entry, given)
        if not fields:
            first = option_name(next(field for field in entry.__struct_fields__ if field != "name"))
            raise click.UsageError(f"there is nothing to set; name a setting, such as --{first}")
        _change(screen, Operation(op=Do.SET, kind=kind, name=name, entry=fields), given, remark)

    text = f"Change {ONE[kind]}.\n\nThe value 'none' restores a default, or empties a list."
    return _changing("set", kind, callback, options(entry), text, examples)


def _remove(kind: Kind) -> click.Command:
    def callback(screen: Screen, /, names: Sequence[str], **given: Any) -> None:
        operations = [Operation(op=Do.DELETE, kind=kind, name=name) for name in dict.fromkeys(names)]
        _send(screen, operations, given)

    return HalCommand(
        "remove",
        callback=pass_screen(callback),
        output=True,
        examples=f"hal {kind} remove NAME",
        help=f"Remove {MANY[kind]}.\n\nAll are removed, or none if something else refers to one of them.",
        params=[click.Argument(["names"], metavar="NAME...", nargs=-1, required=True), *change_options()],
    )


def _changing(
    word: str, kind: Kind, callback: Callable[..., None], fields: Sequence[click.Option], text: str, examples: str
) -> click.Command:
    """Make `add` or `set`. examples: those of the group, from which this command takes its own."""
    own = [line.strip() for line in examples.splitlines() if line.strip().startswith(f"hal {kind} {word} ")]
    return HalCommand(
        word,
        callback=pass_screen(callback),
        output=True,
        examples="\n".join([*own, f"hal {kind} {word} NAME … --dry-run"]),
        help=text,
        params=[click.Argument(["name"]), *fields, *change_options()],
    )


def _change(screen: Screen, operation: Operation, given: Mapping[str, Any], remark: Remark | None) -> None:
    try:
        _send(screen, [operation], given)
    except HALError as error:
        raise in_options(error, operation) from error
    if remark is not None:
        remark(screen, operation)


def _send(screen: Screen, operations: Sequence[Operation], given: Mapping[str, Any]) -> None:
    call = policy_calls.change_policy(operations, dry_run=given["dry_run"], note=given["note"] or "")
    show_change(screen, screen.client.call(call))


def _word(kind: Kind) -> str:
    """What an entry is called in sentences, without an article."""
    return ONE[kind].partition(" ")[2]


def _epilog(examples: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
