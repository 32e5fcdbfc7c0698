"""The credential of a step: how it is made and parsed.

Pure. `halstep_ATTEMPT_KEY`: the attempt's own token, which is not a secret, and a key of its job that can only be
computed with this HAL's secret. So nothing of it is stored, and the key is sent once per job, in the template of its
steps.
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

PREFIX: Final = "halstep_"
KEY_DIGITS: Final = 48
MAX_CHARS: Final = 200
_MAX_DIGITS: Final = 18


class AttemptName(NamedTuple):
    """The parts of an attempt's token."""

    instance: str
    job: int
    task: int
    attempt: int


def job_key(secret: str, job: int) -> str:
    """Compute the key of a job's steps.

    Args:
        secret: of this HAL.
    """
    return hmac.digest(secret.encode(), b"job %d" % job, "sha256").hex()[:KEY_DIGITS]


def step_token(attempt_token: str, key: str) -> str:
    """Build the credential that a step presents."""
    return f"{PREFIX}{attempt_token}_{key}"


def read_step_token(text: str) -> tuple[str, str] | None:
    """Split a credential into the attempt's token and the key; None if it is not a step's credential."""
    if not text.startswith(PREFIX) or len(text) > MAX_CHARS:
        return None
    attempt_token, _, key = text.removeprefix(PREFIX).rpartition("_")
    return attempt_token, key


def read_attempt_token(text: str) -> AttemptName | None:
    """Parse `INSTANCE-JOB.TASK.ATTEMPT-EPOCH.TERM`; None if it has another form."""
    parts = text.split("-")
    numbers = parts[1].split(".") if len(parts) == 3 else []
    if len(numbers) != 3 or any(not one.isascii() or not one.isdigit() or len(one) > _MAX_DIGITS for one in numbers):
        return None
    job, task, attempt = map(int, numbers)
    return AttemptName(parts[0], job, task, attempt)
