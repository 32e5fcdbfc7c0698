"""Check the contract of an Admit."""

from __future__ import annotations

from hal.conformance import inputs
from hal.conformance.answers import Asking, info_of
from hal.core.interfaces.admit import VERSIONS, Admit
from hal.core.model import JobSpec, SpecError, Verdict, check_spec, from_json, to_json


def check_admit(policy: Admit, *, seed: int = 0) -> None:
    """Check that a rule answers each job with a well-formed job of the same user, which it accepts again, or a
    refusal with a message.

    Raises:
        NonConformance: at the first answer that breaks the contract.
    """
    info = info_of(policy, VERSIONS, ("check",))
    asking = Asking(info.name, "check")
    for case, spec in enumerate(inputs.specs(seed)):
        asking.about(f"case {case} of seed {seed}")
        first, second = (_answered(policy, asking, spec) for _ in range(2))
        if first != second:
            raise asking.wrong(
                f"called twice with the same job, it returned {_answer_text(first)} and then {_answer_text(second)}; "
                f"an answer depends "
                "on the job alone (no clock, no randomness, no memory)"
            )
        if isinstance(first, JobSpec):
            again = _answered(policy, asking, first)
            if again != first:
                raise asking.wrong(
                    f"changed a job to {_answer_text(first)}, and that to {_answer_text(again)}: a rule must accept "
                    f"its own "
                    "result unchanged"
                )


def _answered(policy: Admit, asking: Asking, spec: JobSpec) -> JobSpec | Verdict:
    before = to_json(spec)
    answer: object = asking.answer(lambda: policy.check(spec))
    if asking.answer(lambda: to_json(spec)) != before:
        raise asking.wrong("changed the job in place; return a copy (msgspec.structs.replace)")
    if isinstance(answer, Verdict):
        if not isinstance(answer.message, str) or not answer.message.strip():
            raise asking.wrong("refused a job without a message")
        if not isinstance(answer.helps, tuple) or not all(isinstance(one, str) for one in answer.helps):
            raise asking.wrong(f"refused a job with helps={answer.helps!r}; a tuple of texts is needed")
        return answer
    if not isinstance(answer, JobSpec):
        raise asking.wrong(f"returned {type(answer).__name__}; a JobSpec or a Verdict is needed")
    try:
        checked = check_spec(from_json(asking.answer(lambda: to_json(answer)), JobSpec))
    except SpecError as error:
        raise asking.wrong(f"returned a job that is not well formed: {error}") from error
    if checked.user != spec.user:
        raise asking.wrong(f"changed the user from '{spec.user}' to '{checked.user}', which a rule must not do")
    return checked


def _answer_text(answer: JobSpec | Verdict) -> str:
    return f"'{answer.message}'" if isinstance(answer, Verdict) else to_json(answer).decode()
