"""What may be submitted: an Admit is a site's own rule for jobs. Interface version admit/1."""

from __future__ import annotations

from typing import Final, Protocol

from hal.core.interfaces.policy import PolicyInfo
from hal.core.model import JobSpec, Reason, Verdict

INTERFACE: Final = "admit/1"


class Admit(Protocol):
    """Called once for each job of a submission, a dry run, and a change that concerns where or how long a job runs.

    Pure and quick: no I/O, no clock, nothing remembered; the controller does nothing else meanwhile. A rule must let
    pass what it made itself (`check(check(spec))` is `check(spec)`): a changed job is asked about again.
    """

    info: PolicyInfo

    def check(self, spec: JobSpec) -> JobSpec | Verdict:
        """The job as it shall be, often `spec` itself; or the refusal (see `refusal`).

        Args:
            spec: well formed, with its user and the defaults of its queue (walltime, QOS, rule for failed dependencies)
                filled in; frozen. Queue, account and QOS are not yet known to be allowed: what comes back is judged.
        Returns: another value of any field but `user`; it must be well formed again.
        """
        ...


def refusal(message: str, *helps: str) -> Verdict:
    """A refusal at submission: one sentence for whoever submits, and what would be accepted instead."""
    return Verdict(job=0, reason=Reason.ADMISSION, message=message, helps=helps)
