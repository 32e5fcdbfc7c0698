"""`hal submit`: jobs from files, standard input, a script or a command; prints their ids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli import exit_codes
from hal.cli.after_dashes import DashesCommand, after_dashes
from hal.cli.command import pass_screen
from hal.cli.options import environment, job_options, options_of
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.core.model import JobSpec

_ALWAYS_THERE = {"env": {}, "export_all": False}


@click.command(
    "submit",
    cls=DashesCommand,
    short_help="Submit jobs; prints their ids.",
    output=True,
    examples="""
    hal submit fit.toml                        # one job, or several of one file: all or none
    hal submit a.toml b.yaml --set request.cpu=4
    hal submit train.sh -c 4 -m 8GiB           # a script with a #! line
    hal submit -c 2 --array 0-99 -- ./fit.py   # a command
    generate | hal submit - --format json --dry-run
    hal wait $(hal submit fit.toml)
    """,
)
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option("--format", "kind", type=click.Choice(["toml", "yaml", "json", "script"]), help="Instead of by suffix.")
@click.option(
    "--set", "settings", metavar="FIELD=VALUE", multiple=True, help="Change a field of every job in the files."
)
@click.option("--dry-run", is_flag=True, help="Only check; show what would be submitted.")
@click.option("-w", "--wait", "waits", is_flag=True, help="Wait for the end; the exit code is the worst of the jobs'.")
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
    """Submit the jobs in FILEs (TOML, YAML or JSON; scripts), or a COMMAND; all or none. Prints one id a line."""
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
        from hal.cli.wait import wait_for

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
    from hal.cli.spec_files import format_of, read_text, settings_of, specs_of
    from hal.client.specs import spec_from_options

    words = after_dashes(ctx)
    if words is not None and files:
        raise click.UsageError("both files and a command; give one of them")
    if words is not None:
        if not words:
            raise click.UsageError("no command behind --")
        return [spec_from_options(words, options_of(given), environ=os.environ, workdir=os.getcwd())]
    if not files:
        raise click.UsageError("nothing to submit; name a file, or a command behind --")
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
        specs += [_at_home(spec, given) for spec in specs_of(name, text, form, settings_of(settings))]
    return specs


def _stem(name: str) -> str | None:
    return os.path.basename(name).rpartition(".")[0] or None if name != "-" else None


def _refuse_options(ctx: click.Context) -> None:
    """Options that describe a job say nothing about a job file, and would silently be lost."""
    for parameter in ctx.command.params:
        own = getattr(parameter.callback, "__module__", "") == "hal.cli.command"
        named = parameter.name in ("files", "kind", "settings", "dry_run", "waits", "env", "export_all")
        if own or named or parameter.name is None:
            continue
        if ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE:
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} does not change a job file; use --set FIELD=VALUE")


def _at_home(spec: JobSpec, given: dict[str, Any]) -> JobSpec:
    """Where the file names no place, the job runs here; it sees the few variables that every job sees."""
    import msgspec

    from hal.client.specs import sent_environment

    chosen = environment(given["env"], export_all=given["export_all"])
    env = {**sent_environment(os.environ), **spec.env, **chosen}
    return msgspec.structs.replace(spec, env=env, workdir=spec.workdir or os.getcwd())


def _summary(spec: JobSpec) -> str:
    from hal.cli.wording import amounts, limit
    from hal.core.model import plural

    what = f"{spec.title}: {plural(spec.tasks, 'task')}, {amounts(spec.request)}"
    gang = f" on each of {spec.nodes} nodes" if spec.nodes > 1 else ""
    return f"{what}{gang}, walltime {limit(spec.walltime)}, queue {spec.queue}"
