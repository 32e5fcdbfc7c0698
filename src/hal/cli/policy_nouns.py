"""`hal queue`, `hal account` …: list, show, add, set and rm for each kind of named entry of the policy.

Every kind is one table of columns; the options of `add` and `set` are the fields of its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from msgspec import Struct

from hal.cli.command import CONTEXT, HalCommand, pass_screen
from hal.cli.policy_changes import change_options, show_change, written
from hal.cli.policy_fields import entry_of, option_name, options
from hal.cli.policy_words import in_options
from hal.cli.screen import Screen
from hal.client import policy_calls
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
}
"""Each with its article, for sentences."""
Remark = Callable[[Screen, Operation], None]
"""Says something about the fields that were given."""


def noun(
    kind: Kind, entry: type[Struct], row: Row, *, text: str, examples: str, remark: Remark | None = None
) -> click.Group:
    """The group of commands for one kind of entry.

    Args:
        entry: the struct of its fields.
        row: what the list shows of one.
        text: what the thing is, for the help.
        examples: lines to type.
        remark: says what people may not have meant by the fields that they gave, after the change.
    """
    group = click.Group(kind.value, context_settings=CONTEXT, short_help=text, help=text, epilog=_epilog(examples))
    changes = (_add(kind, entry, examples, remark), _set(kind, entry, examples, remark))
    for made in (_list(kind, row), _show(kind), *changes, _rm(kind)):
        group.add_command(made)
    return group


def _list(kind: Kind, row: Row) -> click.Command:
    @click.command("list", cls=HalCommand, output=True, examples=f"hal {kind} list", short_help="List them.")
    @pass_screen
    def command(screen: Screen) -> None:
        entries = getattr(screen.client.call(policy_calls.policy()).value, TABLE[kind])
        rows = [{"NAME": name, **row(entry)} for name, entry in sorted(entries.items())]

        def render() -> None:
            if not rows:
                screen.note(f"no {_word(kind)} is declared")
                return
            # A column that is empty throughout says nothing.
            columns = [name for name in rows[0] if name == "NAME" or any(one[name] for one in rows)]
            screen.table([name.upper() for name in columns], [[one[name] or "-" for name in columns] for one in rows])

        screen.show([{"name": name, **to_plain(entry)} for name, entry in sorted(entries.items())], render)

    command.help = f"List every {_word(kind)} of the policy that holds."
    return command


def _show(kind: Kind) -> click.Command:
    @click.command("show", cls=HalCommand, output=True, examples=f"hal {kind} show NAME", short_help="All of one.")
    @click.argument("name")
    @pass_screen
    def command(screen: Screen, name: str) -> None:
        entries = getattr(screen.client.call(policy_calls.policy()).value, TABLE[kind])
        if name not in entries:
            raise NotFoundError(f"there is no {kind} '{name}'{near(name, entries)}", hint=known_text(kind, entries))
        plain = {"name": name, **to_plain(entries[name])}
        screen.show(plain, lambda: screen.fields({field: written(field, value) for field, value in plain.items()}))

    command.help = f"Show one {_word(kind)}: what differs from the defaults."
    return command


def _add(kind: Kind, entry: type[Struct], examples: str, remark: Remark | None) -> click.Command:
    def callback(screen: Screen, /, name: str, **given: Any) -> None:
        fields = entry_of(entry, given)
        _change(screen, Operation(op=Do.ADD, kind=kind, name=name, entry=fields), given, remark)

    text = f"Add {ONE[kind]}. What is not given has its default."
    return _changing("add", kind, callback, options(entry), text, examples)


def _set(kind: Kind, entry: type[Struct], examples: str, remark: Remark | None) -> click.Command:
    def callback(screen: Screen, /, name: str, **given: Any) -> None:
        fields = entry_of(entry, given)
        if not fields:
            first = option_name(next(field for field in entry.__struct_fields__ if field != "name"))
            raise click.UsageError(f"nothing to set; name a field, like --{first}")
        _change(screen, Operation(op=Do.SET, kind=kind, name=name, entry=fields), given, remark)

    text = f"Change fields of {ONE[kind]}; 'none' gives one its default back, or empties a list."
    return _changing("set", kind, callback, options(entry), text, examples)


def _rm(kind: Kind) -> click.Command:
    def callback(screen: Screen, /, names: Sequence[str], **given: Any) -> None:
        operations = [Operation(op=Do.DELETE, kind=kind, name=name) for name in dict.fromkeys(names)]
        _send(screen, operations, given)

    return HalCommand(
        "rm",
        callback=pass_screen(callback),
        output=True,
        examples=f"hal {kind} rm NAME",
        short_help="Remove some.",
        help=f"Remove each {_word(kind)} named. One that something else refers to stays, and all of them with it.",
        params=[click.Argument(["names"], metavar="NAME...", nargs=-1, required=True), *change_options()],
    )


def _changing(
    word: str, kind: Kind, callback: Callable[..., None], fields: Sequence[click.Option], text: str, examples: str
) -> click.Command:
    """examples: those of the group, of which this one shows its own."""
    own = [line.strip() for line in examples.splitlines() if line.strip().startswith(f"hal {kind} {word} ")]
    return HalCommand(
        word,
        callback=pass_screen(callback),
        output=True,
        examples="\n".join([*own, f"hal {kind} {word} NAME … --dry-run"]),
        short_help="Add one." if word == "add" else "Change one.",
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
    """What it is called in sentences."""
    return ONE[kind].partition(" ")[2]


def _epilog(examples: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
