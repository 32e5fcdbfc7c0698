"""`hal submit`: submit jobs from files, standard input, a script or a command."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.grouped_command import GroupedCommand, with_groups
from hal.cli.jobs.job_options import environment, job_options, options_of
from hal.cli.jobs.trailing_command import trailing_command
from hal.cli.kit import exit_codes
from hal.cli.kit.command import COMMON, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.core.model import Forecast, JobSpec

_FOR_FILES = frozenset({"files", "kind", "settings", "dry_run", "waits", "env", "export_all", "no_sbatch"})
"""Parameters that have a meaning for job files."""


@click.command(
    "submit",
    cls=GroupedCommand,
    output=True,
    examples="""
    hal submit fit.toml                        # one job, or all jobs of the file, or none
    hal submit a.toml b.yaml --set request.cpu=4
    hal submit train.sh -c 4 -m 8GiB           # a script that begins with #!; its #HAL lines hold options, too
    hal submit train.sh fold1 -- --lr 0.1      # with arguments; behind -- they may begin with a dash
    hal submit -c 2 --array 0-99 -- ./fit.py   # a command
    generate | hal submit - --format json --dry-run
    hal wait $(hal submit fit.toml)
    """,
)
@click.argument("files", metavar="[FILE|-]... | SCRIPT [ARG]...", nargs=-1)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["toml", "yaml", "json", "script"]),
    help="Format of the files (default: by suffix).",
)
@click.option(
    "--set", "settings", metavar="FIELD=VALUE", multiple=True, help="Set a field of every job in the files; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Check the jobs and show them; submit nothing.")
@click.option(
    "-w", "--wait", "waits", is_flag=True, help="Wait for the jobs to end; the exit code is the largest of theirs."
)
@click.option("--no-sbatch", is_flag=True, help="Do not read the #SBATCH and #PBS lines of a script.")
@job_options
@pass_screen
@click.pass_context
def submit(
    ctx: click.Context,
    screen: Screen,
    /,
    files: Sequence[str],
    kind: str | None,
    settings: Sequence[str],
    dry_run: bool,
    waits: bool,
    no_sbatch: bool,
    **given: Any,
) -> int:
    """FILEs are job files (TOML, YAML or JSON); - is standard input. All jobs are accepted, or none. A file that begins
    with #! is a SCRIPT, and all words behind it are its arguments.

    Lines of the script that begin with #HAL hold options, as they are typed here; what is typed wins. Without any,
    #SBATCH and #PBS lines are read: what was understood is listed, and what HAL cannot keep is refused. The ids are
    printed one a line.
    """
    specs = specs_given(ctx, screen, files, kind, settings, with_groups(ctx, given), foreign=not no_sbatch)
    forecasts: Sequence[Forecast] = ()
    if dry_run or any(spec.wait_for_change for spec in specs):
        tried = screen.client.dry_run(specs)
        forecasts = tried.forecasts
        for warning in tried.warnings:
            screen.note(warning)
    if dry_run:
        from hal.core.model import to_plain

        if screen.plain:
            screen.emit([to_plain(spec) for spec in specs])
        else:
            for spec, forecast in zip_longest(specs, forecasts):
                screen.line(_summary(spec))
                if forecast is not None:
                    screen.line(f"  {_start(forecast, spec)}")
            screen.note("nothing was submitted")
        return exit_codes.OK
    jobs = screen.client.submit(specs, progress=not screen.plain)
    ids = [job.id for job in jobs]
    if waits:
        from hal.cli.jobs.wait import wait_for

        screen.note(f"submitted {' '.join(ids[:20])}{' …' if len(ids) > 20 else ''}")
        return wait_for(screen, ids, None)
    if screen.plain:
        screen.emit(
            [{"id": job.id, "name": spec.title, "tasks": spec.tasks} for job, spec in zip(jobs, specs, strict=True)]
        )
    else:
        for one in ids:
            screen.line(one)
    return exit_codes.OK


def specs_given(
    ctx: click.Context,
    screen: Screen,
    files: Sequence[str],
    kind: str | None,
    settings: Sequence[str],
    given: dict[str, Any],
    *,
    foreign: bool,
    own: frozenset[str] = frozenset(),
) -> list[JobSpec]:
    """The jobs that a command line describes: by files, by a script with arguments, or by a command after `--`.

    Args:
        given: the values of `job_options`.
        foreign: whether #SBATCH and #PBS lines of a script are read.
        own: parameters of the command that do not describe a job.
    Raises:
        click.UsageError: none of these, or two of them.
        SpecError: a job is malformed.
    """
    from hal.cli.jobs.spec_files import specs_of
    from hal.cli.kit.input_files import SUFFIXES, format_of, read_text, settings_of
    from hal.client.specs import spec_from_options

    words = trailing_command(ctx)
    if words is not None and not files:
        if not words:
            raise click.UsageError("there is no command after --")
        return [spec_from_options(words, options_of(given), environ=os.environ, workdir=os.getcwd())]
    if not files:
        raise click.UsageError(
            "there is nothing to submit; name a file (- is standard input), or write a command after --"
        )
    if words is not None and kind != "script" and all(Path(name).suffix.lower() in SUFFIXES for name in files):
        raise _both()
    specs: list[JobSpec] = []
    for index, name in enumerate(files):
        text = read_text(name)
        form = format_of(name, text, kind)
        if form == "script":
            arguments = [*files[index + 1 :], *(words or ())]
            return [*specs, _of_script(ctx, screen, name, text, arguments, given, foreign=foreign)]
        if words is not None:
            raise _both()
        _refuse_options(ctx, own)
        specs += [_with_place(spec, given) for spec in specs_of(name, text, form, settings_of(settings))]
    return specs


def _both() -> click.UsageError:
    return click.UsageError("files and a command cannot be submitted together; give one of them")


def _of_script(
    ctx: click.Context,
    screen: Screen,
    name: str,
    text: str,
    arguments: Sequence[str],
    given: dict[str, Any],
    *,
    foreign: bool,
) -> JobSpec:
    """The job of a script: its own lines, what is typed above them, and its arguments."""
    from hal.cli.jobs.script_options import with_script_options
    from hal.client.specs import spec_from_options

    found = with_script_options(
        name,
        text,
        ctx,
        given,
        foreign=foreign,
        mail_is_sent=lambda: _sends_mail(screen),
        levels=lambda: screen.client.topology().levels,
    )
    for note in found.notes:
        screen.note(note)
    options = options_of({**found.given, "name": found.given["name"] or _stem(name)})
    options["script"] = text
    options["arguments"] = list(arguments)
    options["dialect"] = found.dialect.value
    return spec_from_options(None, options, environ=os.environ, workdir=os.getcwd())


def _sends_mail(screen: Screen) -> bool:
    """Whether the HAL sends mail; one from before notifications does not."""
    from hal.core.model import NotFoundError

    try:
        return screen.client.notifications().mail
    except NotFoundError:
        return False


def _stem(name: str) -> str | None:
    from hal.core.model.job import is_name

    base = os.path.basename(name)
    stem = base.rpartition(".")[0] or base
    return stem if name != "-" and is_name(stem) else None


def _refuse_options(ctx: click.Context, own: frozenset[str]) -> None:
    """Refuse options that describe a job: for a job file they would silently be lost.

    Raises:
        click.UsageError: there is one.
    """
    for parameter in ctx.command.params:
        if parameter.name is None or parameter.name in COMMON | _FOR_FILES | own:
            continue
        if ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE:
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} does not apply to job files; use --set FIELD=VALUE")


def _with_place(spec: JobSpec, given: dict[str, Any]) -> JobSpec:
    """The spec with the current directory and trace, where the file names none, and variables that every job gets."""
    import msgspec

    from hal.client.specs import inherited_traceparent, sent_environment

    chosen = environment(given["env"], export_all=given["export_all"])
    env = {**sent_environment(os.environ), **spec.env, **chosen}
    return msgspec.structs.replace(
        spec,
        env=env,
        workdir=spec.workdir or ("" if spec.files is not None else os.getcwd()),
        traceparent=spec.traceparent or inherited_traceparent(os.environ),
    )


def _summary(spec: JobSpec) -> str:
    from hal.cli.kit.formats import amounts, limit
    from hal.core.model import plural

    what = f"{spec.title}: {plural(spec.tasks, 'task')}, {amounts(spec.request)}"
    gang = f" on each of {spec.nodes} nodes" if spec.nodes > 1 else ""
    if spec.groups:
        from hal.core.model.groups import described

        kinds = [(one.name, one.nodes, amounts(one.request)) for one in spec.groups]
        what, gang = f"{spec.title}: {plural(spec.tasks, 'task')}", f", {described(kinds)}"
    if spec.has_base:
        gang = f" on each of {spec.nodes} to {spec.nodes + spec.extensions} nodes"
    return f"{what}{gang}, walltime {limit(spec.walltime)}, queue {spec.queue}"


def _start(forecast: Forecast, spec: JobSpec) -> str:
    """When it would start, and what that rests on."""
    from hal.cli.kit.formats import instant
    from hal.core.model.units import format_wait

    it = "its first task" if spec.tasks > 1 else "it"
    if forecast.now:
        return f"{it} would start at once"
    if forecast.starts_at_ms is None:
        return forecast.basis
    wait = format_wait(max(forecast.starts_at_ms - round(time.time() * 1000), 0))
    return f"{it} would start in {wait}, {instant(forecast.starts_at_ms)} ({forecast.basis})"
