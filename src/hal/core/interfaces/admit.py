"""Admission: an Admit is a site's own rule for submitted jobs. Interface version admit/1."""

from __future__ import annotations

from typing import Final, Protocol

from hal.core.interfaces.policy import PolicyInfo
from hal.core.model import JobSpec, Reason, Verdict

INTERFACE: Final = "admit/1"
VERSIONS: Final = (INTERFACE,)


class Admit(Protocol):
    """Called once for each job of a submission or dry run, and for a change of where or how long a job runs.

    Pure and fast: no I/O, no clock, no memory; the controller does nothing else meanwhile. A rule must accept its own
    result unchanged (`check(check(spec))` is `check(spec)`), because a changed job is checked again.
    """

    info: PolicyInfo

    def check(self, spec: JobSpec) -> JobSpec | Verdict:
        """Return the job to submit, often `spec` itself, or a refusal (see `refusal`).

        Args:
            spec: well formed, with its user and the defaults of its queue (walltime, QOS, rule for failed dependencies)
                filled in; frozen. Queue, account and QOS have not been authorised yet: the result is.
        Returns: a job that may differ in any field but `user`; it must be well formed.
        """
        ...


def refusal(message: str, *helps: str) -> Verdict:
    """Create a refusal at submission: one sentence for the submitter, and what would be accepted instead."""
    return Verdict(job=0, reason=Reason.ADMISSION, message=message, helps=helps)
