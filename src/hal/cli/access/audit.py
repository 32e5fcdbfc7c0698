"""`hal audit`: show who changed what, from where, and what was refused; verify that nobody changed the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, output_options, pass_screen, place_options
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.access_calls import AuditEntry
    from hal.core.model.audit_verification import Finding, Verdict

SHOWN_TARGETS = 4
SHOWN_FINDINGS: Final = 20
MAX_READS: Final = 3
"""How often a log is read again because files went while it was read."""


class AuditGroup(NounGroup):
    """Shows entries when no command is named."""


audit = AuditGroup(
    "audit",
    invoke_without_command=True,
    help="Shows the newest requests that changed something, tried to, or were refused, the oldest of them first.",
    epilog="Example: hal audit --since 1h; hal audit --user bob -n 20; hal audit -f; hal audit verify",
    params=[*place_options(), *output_options()],
)


@click.option("--user", metavar="NAME", default="", help="Only requests of this user.")
@click.option("--since", metavar="TIME", help="Only entries since then: 1h or 2d ago, 08:00, yesterday.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, help="Most entries to show (default: 100).")
@click.option("-f", "--follow", is_flag=True, help="Print new entries until Ctrl-C.")
@pass_screen
@click.pass_context
def show_entries(
    context: click.Context, screen: Screen, user: str, since: str | None, limit: int, follow: bool
) -> None:
    """Show entries, unless a command is named."""
    if context.invoked_subcommand is not None:
        return
    from hal.cli.kit.instants import ago_ms
    from hal.client.rest import access_calls
    from hal.client.rest.calls import last_sequence

    since_ms = 0
    if since is not None:
        since_ms = ago_ms(since, "--since")
    page = screen.client.call(access_calls.audit(user=user, since_ms=since_ms, limit=limit))
    newest = max((entry.sequence for entry in page), default=0)
    _write(screen, page[::-1])
    if not follow:
        return
    if user and not newest:
        newest = max((entry.sequence for entry in screen.client.call(access_calls.audit(limit=1))), default=0)
    try:
        while True:
            more = screen.client.call(access_calls.audit(user=user, after=newest, wait_s=access_calls.AUDIT_WAIT_S))
            if more:
                newest = last_sequence(more, newest)
            _write(screen, more)
    except KeyboardInterrupt:
        return


def _adopt(group: AuditGroup) -> None:
    """The options and the action of the group itself are those of `show_entries`."""
    group.callback = show_entries
    group.params = [*getattr(show_entries, "__click_params__", [])[::-1], *group.params]


_adopt(audit)


@command(
    "head",
    output=True,
    examples="""
    hal audit head               # keep it where HAL cannot write
    hal audit head --json | ssh vault 'cat >> hal-heads'
    """,
)
@pass_screen
def head(screen: Screen) -> None:
    """Print the head of the audit log's hash chain as of now.

    It stands for all entries until now: with `hal audit verify --head`, nobody can change or cut off any of them
    unnoticed. HAL keeps the newest heads in its store, too.
    """
    from hal.cli.kit.formats import instant
    from hal.client.rest import access_calls

    found = screen.client.call(access_calls.audit_head())

    def render() -> None:
        screen.line(found.head)
        screen.note(f"all {found.through} entries until {instant(found.at_ms)}, on {found.controller}")

    screen.show(found, render)


@command(
    "verify",
    output=True,
    examples="""
    hal audit verify                       # the log of this HAL, on this machine
    hal audit verify --head 17:9f2c…       # and that it holds what `hal audit head` printed
    hal audit verify /backup/audit         # a copied directory, or copied files
    """,
)
@click.argument("files", metavar="[FILE…]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--head", "heads", metavar="HEAD", multiple=True, help="A head that was kept elsewhere; repeatable.")
@pass_screen
def verify(screen: Screen, files: Sequence[Path], heads: Sequence[str]) -> int:
    """Verify that nobody changed, removed or inserted a line.

    Reads the files themselves, so only who may read them can verify them. FILE is a directory or a file of an audit
    log; without one, the log of this HAL is verified, and compared with the heads that its store has. Exit code 1: a
    line was changed, removed or inserted, or there is no chain.
    """
    from hal.core.model.audit_chain import read_head

    wanted = [read_head(text) for text in heads]
    directory = None
    if not files:
        from hal.runtime.home import find_home

        home = find_home(screen.home)
        directory = home.log_dir / "audit"
        wanted += _stored_heads(screen, str(home.root))
    found = _verdict(files if directory is None else [directory], wanted)
    screen.show(found, lambda: _render(screen, found))
    return exit_codes.OK if found.intact else exit_codes.FAILED


def _stored_heads(screen: Screen, root: str) -> list[tuple[int, str]]:
    """Those that the store has of this home's log; a note where it cannot be asked."""
    from hal.client.rest import access_calls
    from hal.core.model import HALError
    from hal.core.model.audit_chain import read_head
    from hal.runtime.machine import host_name

    try:
        kept = screen.client.call(access_calls.audit_head()).kept
    except HALError as error:
        screen.note(f"not compared with the heads in the store: {error.message}")
        return []
    return [read_head(one.head) for one in kept if one.controller in (f"{host_name()}:{root}", root)]


def _verdict(places: Sequence[Path], heads: Sequence[tuple[int, str]]) -> Verdict:
    """
    Raises:
        NotFoundError: there is no audit log.
        DeniedError: it may not be read.
    """
    from hal.core.model import DeniedError

    try:
        found, paths = _read_log(places, heads)
        for _ in range(MAX_READS):
            if found.intact or _paths(places) == paths:
                break  # else HAL removed files meanwhile, to make room or for their age
            found, paths = _read_log(places, heads)
    except PermissionError as error:
        raise DeniedError(
            f"{error.filename} may not be read by you", hint="ask its owner or root to verify the log"
        ) from error
    return found


def _paths(places: Sequence[Path]) -> list[Path]:
    return [path for place in places for path in (sorted(place.iterdir()) if place.is_dir() else [place])]


def _read_log(places: Sequence[Path], heads: Sequence[tuple[int, str]]) -> tuple[Verdict, list[Path]]:
    """
    Raises: as `_verdict`, and `PermissionError`.
    """
    from hal.core.model import NotFoundError
    from hal.core.model.audit_chain import CHAIN, read_file_name, read_link
    from hal.core.model.audit_verification import verify_log
    from hal.runtime.audit_directory import lines_backwards, rows_of

    paths = _paths(places)
    series: dict[str, list[tuple[int, str]]] = {}
    for path in paths:
        named = read_file_name(path.name)
        if named is not None:
            series.setdefault(named[0], []).append((named[1], str(path)))
        elif path in places:
            if not path.exists():
                raise NotFoundError(f"there is no {path}", hint="name a directory or files of an audit log")
            series.setdefault(path.name, []).append((0, str(path)))
    if not series:
        where = ", ".join(map(str, places))
        raise NotFoundError(f"there is no audit log in {where}", hint="it is in HAL_HOME/log/audit")
    files = {source: [path for _, path in sorted(of)] for source, of in series.items()}
    newest = 0
    for source, of in files.items():
        link = read_link(next(lines_backwards(Path(of[-1])), b""))
        newest = max(newest, link.sequence) if link is not None and source != CHAIN else newest
    return verify_log(files, lambda file: rows_of(Path(file)), newest, heads), paths


def _render(screen: Screen, found: Verdict) -> None:
    from hal.cli.kit.formats import instant

    for one in found.findings[:SHOWN_FINDINGS]:
        screen.line(_finding(one))
    if len(found.findings) > SHOWN_FINDINGS:
        screen.line(f"and {len(found.findings) - SHOWN_FINDINGS} more")
    if not found.lines:
        screen.line("there is no hash chain: nobody can say whether a line was changed")
    elif found.intact_sequence:
        screen.line(f"intact up to entry {found.intact_sequence} of {instant(found.intact_ms)}")
    else:
        screen.line("no entry before that is intact")
    if found.unchained:
        since = f"; the chain begins {instant(found.chained_from_ms)}" if found.chained_from_ms is not None else ""
        screen.line(f"{found.unchained} entries of an earlier version are in no chain{since}")
    if found.fragments:
        screen.line(f"{found.fragments} pieces are no entry, as a power failure or a full disk leaves them")
    if found.lines and not found.head:
        screen.line("no checkpoints: what was removed at the ends is not noticed")
    for text in found.heads_found:
        screen.line(f"head {text} is in the log")
    for text in found.heads_older:
        screen.line(f"head {text} is older than what is kept")


def _finding(one: Finding) -> str:
    where = f"{one.file} line {one.row}: " if one.row else ""
    entry = f" (entry {one.sequence})" if one.sequence else ""
    return f"{where}{one.what}: {one.text}{entry}"


audit.add_command(head)
audit.add_command(verify)


def _write(screen: Screen, entries: Sequence[AuditEntry]) -> None:
    for entry in entries:
        if screen.plain:
            screen.item(entry)
        else:
            screen.line(_line(entry))
    screen.out.flush()


def _line(entry: AuditEntry) -> str:
    from hal.cli.kit.formats import instant

    who = f"{entry.user} ({entry.role})" if entry.user else "unknown"
    token = f" token {entry.token}" if entry.token else ""
    more = len(entry.targets) - SHOWN_TARGETS + entry.more
    about = " ".join(entry.targets[:SHOWN_TARGETS]) + (f" and {more} more" if more > 0 else "")
    refused = f"  refused: {entry.refused}" if entry.refused else ""
    if entry.times > 1:
        refused += f"  ({entry.times} of these since {instant(entry.since_ms)})"
    what = f"{entry.method} {entry.path}  {entry.status or 'no answer'}"
    return f"{instant(entry.at_ms)}  {who} from {entry.peer}{token}  {what}{refused}{'  ' if about else ''}{about}"
