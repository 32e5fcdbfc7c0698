"""The options of a script's own lines, under those of the command line: `#HAL`, else `#SBATCH`, else `#PBS`.

What is typed wins. Variables and labels are added by name; every other option replaces the script's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from shutil import which
from typing import Any, Final

import click

from hal.cli.jobs.directives import HAL, PBS, SBATCH, Directive, read_directives
from hal.cli.jobs.foreign_options import Translation
from hal.core.model import Dialect, SpecError, shown
from hal.core.model.job import is_name

ADDED = frozenset({"env", "label"})
"""Repeatable options of which the command line replaces only those of the same name."""


class ScriptOptions:
    """What a script asks for in its own lines."""

    def __init__(self, given: dict[str, Any], *, dialect: Dialect = Dialect.HAL, notes: tuple[str, ...] = ()) -> None:
        self.given = given
        """The values of all options that describe a job: those of the command line, and below them the script's."""
        self.dialect = dialect
        self.notes = notes
        """For people: what was understood of another scheduler's lines."""


def with_script_options(
    name: str,
    script: str,
    ctx: click.Context,
    given: Mapping[str, Any],
    *,
    foreign: bool,
    mail_is_sent: Callable[[], bool],
    levels: Callable[[], Sequence[str]],
) -> ScriptOptions:
    """Put the options of a script's lines below those of the command line.

    Args:
        name: of the file, for errors.
        ctx: of `hal submit`, which knows what was typed.
        given: the values of its options.
        foreign: whether lines of other schedulers are read.
        mail_is_sent: asks the HAL whether it sends mail; called if lines of another scheduler ask for some.
        levels: asks the HAL for the levels of its topology; called if lines of another scheduler ask for switches.
    Raises:
        SpecError: a line has an option that does not exist, or that would change the meaning of the job.
    """
    typed = {
        parameter: value
        for parameter, value in given.items()
        if ctx.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE
    }
    try:
        own = read_directives(script, HAL)
        if own:
            return ScriptOptions(_merged(given, typed, _parsed(own, ctx)))
        for mark in (SBATCH, PBS) if foreign else ():
            lines = read_directives(script, mark)
            if lines:
                return _foreign(name, mark, lines, given, typed, script, mail_is_sent, levels)
    except SpecError as error:
        raise SpecError(f"{name}: {error.message}", hint=error.hint) from error
    return ScriptOptions(dict(given))


def _parsed(lines: list[Directive], ctx: click.Context) -> dict[str, Any]:
    """The options of `#HAL` lines; a later line wins, and repeatable options are collected.

    Raises:
        SpecError: not an option of a job; names the line.
    """
    from hal.cli.jobs.job_options import job_options
    from hal.cli.kit.synonyms import option_hint

    command = job_options(click.command("#HAL", cls=click.Command, add_help_option=False)(_nothing))
    assert isinstance(command, click.Command)
    found: dict[str, Any] = {}
    for line in lines:
        try:
            inner = command.make_context(HAL, list(line.words), parent=ctx)
        except click.NoSuchOption as error:
            known = {name for one in command.params for name in one.opts}
            raise SpecError(
                f"line {line.line}: {HAL} {' '.join(line.words)}: no such option '{error.option_name}'",
                hint=option_hint(error.option_name, known) or _LISTED,
            ) from None
        except click.UsageError as error:
            message = error.format_message().rstrip(".")
            raise SpecError(
                f"line {line.line}: {HAL} {' '.join(line.words)}: {message[:1].lower()}{message[1:]}",
                hint=_LISTED,
            ) from None
        for parameter, value in inner.params.items():
            if inner.get_parameter_source(parameter) is not click.core.ParameterSource.COMMANDLINE:
                continue
            found[parameter] = (*found.get(parameter, ()), *value) if isinstance(value, tuple) else value
    return found


_LISTED: Final = "the options of a job are those of hal submit --help, one or several a line"


def _nothing(**given: Any) -> None:
    """The callback of a command that is only parsed."""


def _merged(given: Mapping[str, Any], typed: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    out = {**given, **own, **typed}
    for option in ADDED & own.keys() & typed.keys():
        names = {text.partition("=")[0] for text in typed[option]}
        out[option] = (*(text for text in own[option] if text.partition("=")[0] not in names), *typed[option])
    return out


def _foreign(
    name: str,
    mark: str,
    lines: list[Directive],
    given: Mapping[str, Any],
    typed: Mapping[str, Any],
    script: str,
    mail_is_sent: Callable[[], bool],
    levels: Callable[[], Sequence[str]],
) -> ScriptOptions:
    from hal.cli.jobs.foreign_mail import Mail
    from hal.runtime.machine import host_name
    from hal.runtime.step_users import own_account

    here, host = os.getcwd(), host_name()
    mail = Mail(given["user"] or own_account(), mail_is_sent)
    if mark == SBATCH:
        from hal.cli.jobs.sbatch import translated_sbatch

        elastic = "HAL_ELASTIC" in script
        made = translated_sbatch(lines, workdir=here, host=host, given=typed, mail=mail, levels=levels, elastic=elastic)
        dialect = Dialect.SLURM
    else:
        from hal.cli.jobs.pbs import translated_pbs

        home = os.path.expanduser("~")
        made, dialect = translated_pbs(lines, workdir=here, home=home, host=host, given=typed, mail=mail), Dialect.PBS
    base = os.path.basename(name)
    if "name" not in made.options and is_name(base):
        made.put("name", base)  # the job's, there and in %x, unless something else says it
    if "OMP_NUM_THREADS" in os.environ:
        made.env.pop("OMP_NUM_THREADS", None)
    own = made.options | {"env": (*(f"{key}={value}" for key, value in made.env.items()), *made.options.get("env", ()))}
    return ScriptOptions(_merged(given, typed, own), dialect=dialect, notes=_notes(made, script))


def _notes(made: Translation, script: str) -> tuple[str, ...]:
    notes = [f"from {made.mark}: {', '.join(made.applied) or 'nothing'}"]
    if made.ignored:
        notes.append(f"ignored: {', '.join(dict.fromkeys(made.ignored))}")
    many = made.options.get("nodes", 1) != 1 or "nodes" in made.given
    for number, line in enumerate(script.splitlines(), 1):
        words = line.split()
        if words[:1] == ["srun"]:
            if many and which("srun") is None:
                raise SpecError(
                    f"line {number} calls srun, which HAL has not: '{shown(line.strip())}'",
                    hint="write hal launch instead of srun, see docs/from-slurm.md#several-nodes",
                )
            notes.append(
                f"line {number} calls srun, which comes with Slurm: where nodes lack it, the job fails there; "
                f"docs/from-slurm.md says what to write instead of '{shown(line.strip())}'"
            )
            break
        if many and words[:1] in (["mpirun"], ["mpiexec"]):
            notes.append(
                f"line {number} calls {words[0]}, which reaches other nodes through srun or ssh, neither of which is "
                "HAL's; hal launch runs a command on all of them"
            )
            break
    return tuple(notes)
