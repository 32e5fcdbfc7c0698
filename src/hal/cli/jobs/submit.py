"""`hal submit`: submit jobs from files, standard input, a script or a command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.job_options import environment, job_options, options_of
from hal.cli.jobs.trailing_command import TrailingCommand, trailing_command
from hal.cli.kit import exit_codes
from hal.cli.kit.command import COMMON, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.core.model import JobSpec

_FOR_FILES = frozenset({"files", "kind", "settings", "dry_run", "waits", "env", "export_all"})
"""Parameters that have a meaning for job files."""


@click.command(
    "submit",
    cls=TrailingCommand,
    output=True,
    examples="""
    hal submit fit.toml                        # one job, or all jobs of the file, or none
    hal submit a.toml b.yaml --set request.cpu=4
    hal submit train.sh -c 4 -m 8GiB           # a script that begins with #!
    hal submit -c 2 --array 0-99 -- ./fit.py   # a command
    generate | hal submit - --format json --dry-run
    hal wait $(hal submit fit.toml)
    """,
)
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
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
    **given: Any,
) -> int:
    """FILEs are job files (TOML, YAML or JSON) or scripts; - is standard input. All jobs are accepted, or none.

    The ids are printed one a line.
    """
    specs = _specs(ctx, files, kind, settings, given)
    if dry_run:
        screen.client.check(specs)
        from hal.core.model import to_plain

        if screen.plain:
            screen.emit([to_plain(spec) for spec in specs])
        else:
            for spec in specs:
                screen.line(_summary(spec))
            screen.note("nothing was submitted")
        return exit_codes.OK
    jobs = screen.client.submit(specs)
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


def _specs(
    ctx: click.Context, files: Sequence[str], kind: str | None, settings: Sequence[str], given: dict[str, Any]
) -> list[JobSpec]:
    from hal.cli.jobs.spec_files import specs_of
    from hal.cli.kit.input_files import format_of, read_text, settings_of
    from hal.client.specs import spec_from_options

    words = trailing_command(ctx)
    if words is not None and files:
        raise click.UsageError("files and a command cannot be submitted together; give one of them")
    if words is not None:
        if not words:
            raise click.UsageError("there is no command after --")
        return [spec_from_options(words, options_of(given), environ=os.environ, workdir=os.getcwd())]
    if not files:
        raise click.UsageError("there is nothing to submit; name a file, or write a command after --")
    specs: list[JobSpec] = []
    for name in files:
        text = read_text(name)
        form = format_of(name, text, kind)
        if form == "script":
            options = options_of({**given, "name": given["name"] or _stem(name)})
            options["script"] = text
            specs.append(spec_from_options(None, options, environ=os.environ, workdir=os.getcwd()))
            continue
        _refuse_options(ctx)
        specs += [_with_place(spec, given) for spec in specs_of(name, text, form, settings_of(settings))]
    return specs


def _stem(name: str) -> str | None:
    return os.path.basename(name).rpartition(".")[0] or None if name != "-" else None


def _refuse_options(ctx: click.Context) -> None:
    """Refuse options that describe a job: for a job file they would silently be lost.

    Raises:
        click.UsageError: there is one.
    """
    for parameter in ctx.command.params:
        if parameter.name is None or parameter.name in COMMON or parameter.name in _FOR_FILES:
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
        workdir=spec.workdir or os.getcwd(),
        traceparent=spec.traceparent or inherited_traceparent(os.environ),
    )


def _summary(spec: JobSpec) -> str:
    from hal.cli.kit.formats import amounts, limit
    from hal.core.model import plural

    what = f"{spec.title}: {plural(spec.tasks, 'task')}, {amounts(spec.request)}"
    gang = f" on each of {spec.nodes} nodes" if spec.nodes > 1 else ""
    return f"{what}{gang}, walltime {limit(spec.walltime)}, queue {spec.queue}"
