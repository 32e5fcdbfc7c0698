"""`hal advice`: what planes and people advise the scheduler's policies, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.advice_calls import AdviceInfo

COLUMNS = ("KIND", "SPACE", "KEYS", "KNOWN", "VERSION", "AGE", "EXPIRES IN", "USER", "READ BY")
SPACES = ("nodes", "queues", "accounts", "users", "jobs")

advice = NounGroup(
    "advice",
    aliases={"rm": "remove"},
    help="Advice is a table of keys and numbers that policies may read: prices, loads, predictions. For operators.",
    epilog="Example: hal advice put price prices.csv --space nodes",
)


@command("list", output=True, examples="hal advice list")
@pass_screen
def list_kinds(screen: Screen) -> None:
    """List the kinds of advice that are held.

    KNOWN counts the keys that name something the scheduler knows now. READ BY names the policies in use that read it.
    """
    from hal.client.rest import advice_calls

    found = screen.client.call(advice_calls.kinds())

    screen.show_list(found, COLUMNS, _row, "there is no advice; put some: hal advice put KIND FILE --space nodes")


@command(
    "show",
    output=True,
    examples="""
    hal advice show price
    hal advice show price --json > price.json     # a file that `hal advice put` reads
    """,
)
@click.argument("kind")
@pass_screen
def show(screen: Screen, kind: str) -> None:
    """Show the keys and values of a kind of advice."""
    from hal.client.rest import advice_calls

    values = screen.client.advice_values(kind)
    found = screen.client.call(advice_calls.page(kind, limit=1)).advice

    def render() -> None:
        screen.table(
            (found.space.rstrip("s").upper(), "VALUE"), [(str(key), f"{one:g}") for key, one in values.items()]
        )

    screen.show({"advice": found, "keys": list(values), "values": list(values.values())}, render)


@command(
    "put",
    output=True,
    examples="""
    hal advice put price prices.csv --space nodes --expires-in 10m
    hal advice put price changed.json --space nodes --delta
    echo '{"n1": 0.9, "n2": null}' | hal advice put price - --space nodes --delta
    """,
)
@click.argument("kind")
@click.argument("file")
@click.option("--space", type=click.Choice(SPACES), required=True, help="What the keys name.")
@click.option("--delta", is_flag=True, help="Change these keys only (default: they replace all that was held).")
@click.option("--expires-in", metavar="TIME", help="Time for which it holds (default: 5m, at most 7d).")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Its version (default: one more than before).")
@click.option("--base", type=click.IntRange(min=1), metavar="N", help="With --delta: only if this version is held.")
@pass_screen
def put(
    screen: Screen,
    kind: str,
    file: str,
    space: str,
    delta: bool,
    expires_in: str | None,
    version: int | None,
    base: int | None,
) -> None:
    """Put the keys and values of FILE as advice of a KIND: a JSON object of keys and numbers (null: none), or CSV.

    A CSV file has two columns, key and number (empty: none); its first line may be a heading. `-` reads standard input.
    """
    from hal.cli.kit.input_files import read_text

    values = values_of(file, read_text(file))
    outcome = screen.client.put_advice(
        kind, values, space=space, delta=delta, version=version, base=base, expires_in=expires_in
    )
    held = outcome.advice

    def render() -> None:
        screen.line(f"{held.kind} version {held.version}: {held.count} keys")
        if not outcome.applied:
            screen.note("this version was held already; nothing was changed")
        elif not held.read_by:
            screen.note("no policy in use reads it")

    screen.show(outcome, render)


@command("remove", output=True, examples="hal advice remove price")
@click.argument("kinds", metavar="KIND...", nargs=-1, required=True)
@pass_screen
def remove(screen: Screen, kinds: Sequence[str]) -> None:
    """Remove kinds of advice: policies find nothing of them any more."""
    removed = [screen.client.withdraw_advice(kind) for kind in dict.fromkeys(kinds)]

    def render() -> None:
        for one in removed:
            screen.line(f"{one.kind} removed")

    screen.show(removed, render)


def values_of(file: str, text: str) -> dict[str, float | None]:
    """Keys and values in the text of a file.

    Raises:
        SpecError: it is neither JSON nor CSV of that form; names the line or key.
    """
    from hal.core.model import SpecError

    pairs = _of_json(file, text) if text.lstrip()[:1] in ("{", "[") else _of_csv(file, text)
    values: dict[str, float | None] = {}
    for key, value in pairs:
        if key in values:
            raise SpecError(f"file '{file}': key '{key}' is there twice")
        values[key] = value
    return values


def _of_json(file: str, text: str) -> list[tuple[str, float | None]]:
    import json

    from hal.core.model import SpecError

    try:
        plain = json.loads(text)
    except ValueError as error:
        raise SpecError(f"file '{file}' is not JSON: {error}", hint='such as {"n1": 0.5, "n2": 1}') from error
    if isinstance(plain, dict) and isinstance(plain.get("keys"), list) and isinstance(plain.get("values"), list):
        if len(plain["keys"]) != len(plain["values"]):
            raise SpecError(f"file '{file}': {len(plain['keys'])} keys, but {len(plain['values'])} values")
        pairs = list(zip((str(key) for key in plain["keys"]), plain["values"], strict=True))
    elif isinstance(plain, dict):
        pairs = list(plain.items())
    else:
        raise SpecError(f"file '{file}': an object of keys and numbers is expected", hint='for example {"n1": 0.9}')
    for key, value in pairs:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SpecError(f"file '{file}': the value of '{key}' is not a number", hint="write null for none")
    return pairs


def _of_csv(file: str, text: str) -> list[tuple[str, float | None]]:
    import csv

    from hal.core.model import SpecError

    pairs: list[tuple[str, float | None]] = []
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or not "".join(row).strip():
            continue
        if len(row) != 2:
            raise SpecError(
                f"file '{file}', line {number}: {len(row)} columns; a key and a number are expected",
                hint="such as n1,0.5",
            )
        key, value = (cell.strip() for cell in row)
        try:
            pairs.append((key, float(value) if value else None))
        except ValueError:
            if number > 1:
                raise SpecError(
                    f"file '{file}', line {number}: '{value}' is not a number", hint="such as n1,0.5"
                ) from None
    return pairs


def _row(one: AdviceInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import NOTHING, span

    left_ms = one.expires_ms - one.updated_ms - one.age_ms
    known = NOTHING if one.known is None else str(one.known)
    readers = ", ".join(one.read_by) or NOTHING
    return (
        one.kind, one.space, str(one.count), known, str(one.version), span(one.age_ms), span(left_ms), one.user, readers
    )  # fmt: skip


advice.add_command(list_kinds)
advice.add_command(show)
advice.add_command(put)
advice.add_command(remove)
