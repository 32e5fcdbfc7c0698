"""`hal replace`: let a new job take the place of a service, task by task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from hal.cli.jobs.job_options import job_options, options_of
from hal.cli.jobs.trailing_command import TrailingCommand, trailing_command
from hal.cli.kit import exit_codes
from hal.cli.kit.command import pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.core.model import JobSpec

LOOK_S: Final = 0.5
"""Pause between two looks with --wait."""
REPLACES: Final = "replaces job"
"""How the reason of the new job begins until it is over."""


@click.command(
    "replace",
    cls=TrailingCommand,
    output=True,
    examples="""
    hal replace 42 -- ./serve-v2
    hal replace 42 --env MODEL=v2 --max-unavailable 1 --wait
    hal replace 42 service.toml --give-up-after 10m
    """,
)
@click.argument("job", metavar="JOB")
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--max-unavailable",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Ready tasks that may be missing meanwhile: so many old ones make room.",
)
@click.option(
    "--give-up-after",
    metavar="TIME",
    default="5m",
    show_default=True,
    help="Give up when no further task became ready for so long.",
)
@click.option("--dry-run", is_flag=True, help="Check the new job and show what would change; change nothing.")
@click.option("--wait", "waits", is_flag=True, help="Wait until the old job was replaced, or the new one given up.")
@job_options
@pass_screen
@click.pass_context
def replace(
    ctx: click.Context,
    screen: Screen,
    /,
    job: str,
    file: str | None,
    max_unavailable: int,
    give_up_after: str,
    dry_run: bool,
    waits: bool,
    **given: Any,
) -> int:
    """The new job is as the old one, but for what you name: a command, options, or a file with the whole job.

    Its tasks start beside the old ones; each that is ready lets an old one leave. When all are ready, the old job is
    cancelled. If they do not get ready in time, the new job is cancelled, and the old one goes on.
    """
    words, options = trailing_command(ctx), options_of(given)
    if not options["env"]:
        del options["env"]
    if words is not None and not words:
        raise click.UsageError("there is no command after --")
    whole = None if file is None else _job_in(file)
    if whole is not None and (words or options):
        raise click.UsageError("a file with the whole job takes neither a command nor options of the job beside it")
    if whole is None and not (words or options):
        raise click.UsageError("nothing is named that is to change; write a command after --, options, or a file")
    old = screen.client.job(job)
    if dry_run:
        spec = old.replacement(whole or words, max_unavailable=max_unavailable, give_up_after=give_up_after, **options)
        return _preview(screen, old, spec)
    made = old.replace(whole or words, max_unavailable=max_unavailable, give_up_after=give_up_after, **options)
    if waits and (reason := _awaited(made)):
        screen.note(f"job {made.id}: {reason}")
        return exit_codes.FAILED
    screen.show({"id": made.id, "replaces": old.id}, lambda: screen.line(made.id))
    return exit_codes.OK


def _preview(screen: Screen, old: Job, spec: dict[str, Any]) -> int:
    """Check the new job, and show in what it differs from the old one.

    Raises:
        SpecError, ConflictError: it would be refused.
    """
    from hal.cli.jobs.update import field_text
    from hal.core.model import spec_from_plain, to_plain

    for warning in screen.client.check([spec]):
        screen.note(warning)
    before, after = (to_plain(spec_from_plain(one)) for one in (old.info.spec or {}, spec))
    for one in (before, after):
        one["service"] = {name: value for name, value in one["service"].items() if name != "replaces"}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    changes = [{"field": name, "before": before.get(name), "after": after.get(name)} for name in names]

    def draw() -> None:
        for name in names:
            shown = (field_text(name, one) for one in _differing(before.get(name), after.get(name)))
            screen.line(f"{name} {' → '.join(shown)}")
        screen.note("nothing was submitted" if names else "nothing would change; nothing was submitted")

    screen.show({"replaces": old.id, "changes": changes}, draw)
    return exit_codes.OK


def _differing(before: Any, after: Any) -> tuple[Any, Any]:
    """Of two tables, such as environments, the entries that differ; all else as it is."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return before, after
    return (
        {key: value for key, value in before.items() if after.get(key) != value},
        {key: value for key, value in after.items() if before.get(key) != value},
    )


def _job_in(file: str) -> JobSpec:
    """
    Raises:
        SpecError: it has not exactly one job, or a malformed one.
    """
    from hal.cli.jobs.spec_files import specs_of
    from hal.cli.kit.input_files import format_of, read_text
    from hal.core.model import SpecError

    text = read_text(file)
    kind = format_of(file, text, None)
    if kind == "script":
        raise SpecError(
            f"{file}: no job file", hint="it ends with .toml, .yaml or .json; a command is written after --"
        )
    specs = specs_of(file, text, kind, {})
    if len(specs) != 1:
        raise SpecError(f"{file}: {len(specs)} jobs", hint="one job replaces another one")
    return specs[0]


def _awaited(made: Job) -> str:
    """Wait until it is over; why it was given up, or ''."""
    while True:
        info = made.refresh()
        if info.ended or not info.reason.startswith(REPLACES):
            return info.reason or (f"it has ended: {info.state}" if info.ended else "")
        time.sleep(LOOK_S)
