"""`hal reader`: programs that follow ended attempts and events, and for which unread ones are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.feed_calls import FeedPosition, ReaderInfo

COLUMNS = ("NAME", "USER", "ATTEMPTS", "BEHIND", "EVENTS", "BEHIND", "HEARD")

reader = NounGroup(
    "reader",
    aliases={"rm": "remove"},
    help="What a registered reader has not read of ended attempts and events is kept for it.",
    epilog="Example: hal reader add archive --feed attempts; hal reader list",
)


@command("list", output=True, examples="hal reader list")
@pass_screen
def list_readers(screen: Screen) -> None:
    """List the registered readers, and how far each has read."""
    from hal.client.rest import feed_calls

    found = screen.client.call(feed_calls.readers())

    screen.show_list(found, COLUMNS, _cells, "there are no readers; register one: hal reader add NAME")


@command(
    "add",
    output=True,
    examples="""
    hal reader add archive --feed attempts
    hal reader add audit --from oldest      # begins with the oldest that is still kept
    """,
)
@click.argument("name")
@click.option(
    "--feed", "feeds", type=click.Choice(("attempts", "events")), multiple=True, help="What it reads (default: both)."
)
@click.option(
    "--from", "begin", type=click.Choice(("now", "oldest")), default="now", show_default=True, help="Where it begins."
)
@pass_screen
def add(screen: Screen, name: str, feeds: tuple[str, ...], begin: str) -> None:
    """Register a reader.

    A reader that is registered already keeps its position.
    """
    from hal.client.rest import feed_calls

    made = screen.client.call(feed_calls.register_reader(name, feeds=feeds or ("attempts", "events"), begin=begin))
    screen.show(made, lambda: screen.table(COLUMNS, [_cells(made)]))


@command("remove", output=True, examples="hal reader remove archive")
@click.argument("name")
@pass_screen
def remove(screen: Screen, name: str) -> None:
    """Remove a reader.

    Nothing is kept for it any more.
    """
    from hal.client.rest import feed_calls

    gone = screen.client.call(feed_calls.remove_reader(name))
    screen.show(gone, lambda: screen.line(f"{gone.name} removed"))


def _cells(one: ReaderInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    return (one.name, one.user, *_position(one.attempts), *_position(one.events), instant(one.heard_ms))


def _position(of: FeedPosition | None) -> tuple[str, str]:
    return ("-", "-") if of is None else (str(of.read), str(of.behind))


for one in (list_readers, add, remove):
    reader.add_command(one)
