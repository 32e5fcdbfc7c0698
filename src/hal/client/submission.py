"""The arguments of `submit` as specs: one command, one spec, or several specs.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hal.client.specs import JobOptions, spec_from_options
from hal.core.model import JobSpec, SpecError, check_spec, spec_from_plain

MAX_JOBS_A_CALL = 100_000
"""Most jobs in one submission."""

SpecLike = JobSpec | Mapping[str, Any]
"""A spec, or plain data that becomes one."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Checked specs, and whether the caller gave a list of them (and so gets a list of jobs)."""

    specs: tuple[JobSpec, ...]
    many: bool


def sort_out(
    what: str | Sequence[str] | SpecLike | Sequence[SpecLike] | None,
    options: JobOptions,
    *,
    environ: Mapping[str, str],
    workdir: str,
) -> Submission:
    """Make specs of the arguments of `submit`.

    Raises:
        SpecError: malformed, empty, keywords beside a whole spec, or more than `MAX_JOBS_A_CALL`.
    """
    if isinstance(what, JobSpec | Mapping):
        _refuse_keywords(options)
        return Submission((_checked(what),), many=False)
    if what is None or isinstance(what, str):
        return _one_command(what, options, environ, workdir)
    if not isinstance(what, Sequence) or isinstance(what, bytes | bytearray):
        raise SpecError(
            f"submit: expected a command, text for /bin/sh, or a spec; got {type(what).__name__}",
            hint='write, for example, ["echo", "hello"]',
        )
    if any(isinstance(item, JobSpec | Mapping) for item in what):
        _refuse_keywords(options)
        if len(what) > MAX_JOBS_A_CALL:
            raise SpecError(
                f"{len(what)} jobs in one call, and at most {MAX_JOBS_A_CALL} are allowed", hint="submit an array"
            )
        return Submission(tuple(_checked_at(i, len(what), one) for i, one in enumerate(what)), many=True)
    if not what:
        raise SpecError("there is nothing to submit: the command, or the list of specs, is empty")
    words: list[Any] = list(what)
    return _one_command(words, options, environ, workdir)


def _one_command(
    command: str | Sequence[str] | None, options: JobOptions, environ: Mapping[str, str], workdir: str
) -> Submission:
    return Submission((spec_from_options(command, options, environ=environ, workdir=workdir),), many=False)


def _refuse_keywords(options: JobOptions) -> None:
    if options:
        raise SpecError(
            f"submit: keywords ({', '.join(options)}) cannot be combined with a spec", hint="put them into the spec"
        )


def _checked(spec: Any) -> JobSpec:
    return check_spec(spec) if isinstance(spec, JobSpec) else spec_from_plain(spec)


def _checked_at(position: int, total: int, spec: Any) -> JobSpec:
    try:
        return _checked(spec)
    except SpecError as error:
        raise SpecError(f"job {position + 1} of {total}: {error.message}", hint=error.hint) from error
