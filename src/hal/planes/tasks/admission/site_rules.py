"""The site's own rules for what may be submitted: each Admit is asked in turn, and what it answers is checked.

Pure, as far as the rules are. A rule may refuse a job or change anything of it but its user. What it does wrong (it
raises, answers something else, makes a job that is not well formed) is a fault that names it: the submission is refused
and nothing is kept.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from hal.core.interfaces.admit import Admit
from hal.core.model import InternalError, JobSpec, SpecError, Verdict, from_json, to_json
from hal.core.model.errors import shown
from hal.core.model.job import check_spec

MAX_MESSAGE: Final = 1_000
"""Longest text of a refusal, and of all its advice, that is passed on."""
_DEFAULTED: Final = ("qos", "walltime", "on_dependency_failed", "on_node_lost", "movable")
_HINT: Final = "nothing was changed; an administrator can repair the rule or remove it from hal.toml"


def ruled(spec: JobSpec, rules: Sequence[Admit], with_defaults: Callable[[JobSpec], JobSpec]) -> JobSpec:
    """The job as the rules want it.

    Args:
        spec: well formed, its user filled in.
        with_defaults: what rules are shown instead. A default that a rule leaves alone is not kept: the queue that the
            job has in the end gives its own.
    Raises:
        SpecError: a rule refuses it.
        InternalError: a rule is faulty.
    """
    for rule in rules:
        seen = with_defaults(spec)
        answer = _answer(rule, seen)
        if answer is not seen:
            left = {name: getattr(spec, name) for name in _DEFAULTED if getattr(answer, name) == getattr(seen, name)}
            spec = replace(answer, **left)
    return spec


def refuse_changed(asked: JobSpec, after: JobSpec, rules: Sequence[Admit]) -> None:
    """A job that is there already is not changed behind the back of whoever changes it.

    Raises:
        SpecError: the rules would have made another job of it; names the fields.
    """
    fields = [name for name in JobSpec.__struct_fields__ if getattr(asked, name) != getattr(after, name)]
    if fields:
        of = ", ".join(f"'{rule.info.name}'" for rule in rules)
        raise SpecError(
            f"{', '.join(fields)}: the rules of this site ({of}) would change this job",
            hint="change those fields too, or cancel the job and submit it again",
        )


def _answer(rule: Admit, spec: JobSpec) -> JobSpec:
    before = to_json(spec)
    try:
        answer: object = rule.check(spec)
    except Exception as error:  # other people's code: whatever it raises must refuse this submission and no more
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {shown(str(error))}, at {where.filename}:{where.lineno}"
        raise _fault(rule, f"failed ({said})") from error
    if _json(rule, spec) != before:
        raise _fault(rule, "changed the job in place instead of returning another")
    if answer is spec:
        return spec
    if isinstance(answer, Verdict):
        raise _refusal(rule, answer)
    if not isinstance(answer, JobSpec):
        raise _fault(rule, f"returned {shown(answer)}; a JobSpec or a Verdict is needed")
    try:
        checked = check_spec(from_json(_json(rule, answer), JobSpec))
    except SpecError as error:
        raise _fault(rule, f"made a job that is not well formed: {error.message}") from error
    if checked.user != spec.user:
        raise _fault(rule, f"changed the user from '{spec.user}' to '{checked.user}', which no rule may")
    return checked


def _json(rule: Admit, spec: JobSpec) -> bytes:
    try:
        return to_json(spec)
    except (TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise _fault(rule, f"made a job that is not well formed: {error}") from error


def _refusal(rule: Admit, verdict: Verdict) -> SpecError:
    if not isinstance(verdict.message, str) or not verdict.message.strip():
        raise _fault(rule, "refused the job without a message")
    if not isinstance(verdict.helps, tuple) or not all(isinstance(one, str) for one in verdict.helps):
        raise _fault(rule, "refused the job with advice (`helps`) that is not a tuple of texts")
    helps = "; ".join(verdict.helps)
    return SpecError(f"refused by rule '{rule.info.name}': {_cut(verdict.message)}", hint=_cut(helps))


def _fault(rule: Admit, what: str) -> InternalError:
    return InternalError(f"rule '{rule.info.name}' of this site {what}", hint=_HINT)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"
