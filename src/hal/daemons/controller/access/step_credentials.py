"""Steps that ask: each acts as the submitter of its job, as a user, in the job's queue and account, while its attempt
lives.

Pure apart from what it is given. A step is known by the credential in its environment, or, on a Unix socket, by the
kernel's word for the process that connected.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.core.model.step_token import AttemptName, job_key, read_attempt_token, read_step_token
from hal.rest.identity import Identity, Scope, UnauthorizedError
from hal.rest.rights import Role

ASK_THE_LEADER: Final = "job {}"
"""The user of a step, where it is not known who submitted it: no user's name has a space."""


class RunningStep(NamedTuple):
    """An attempt that lives, and whose it is."""

    token: str
    user: str
    queue: str
    account: str


def speaks_for_its_job(step: Identity) -> Identity:
    """A step of which only its token is known: whoever has that speaks for its job alone."""
    name = read_attempt_token(step.step)
    assert name is not None  # it was read to find out who this is
    return replace(step, only_job=name.job)


class StepCredentials:
    """Turns what a step shows into an identity."""

    def __init__(
        self,
        instance: Callable[[], str],
        secret: Callable[[], str],
        running: Callable[[AttemptName], RunningStep | None] | None,
    ) -> None:
        """
        Args:
            instance: names this HAL; '' while that is not known.
            secret: by which it knows its steps.
            running: finds an attempt that lives; None: only the leader can, and the request is passed on to it.
        """
        self._instance = instance
        self._secret = secret
        self._running = running

    @property
    def instance(self) -> str:
        """What tokens of this HAL's attempts begin with; '' while that is not known."""
        return self._instance()

    def shown(self, text: str, peer: str) -> Identity | None:
        """Who shows that credential; None: it is no step's of this HAL.

        Raises:
            UnauthorizedError: it is forged, or its attempt has ended.
        """
        read = read_step_token(text)
        name = read_attempt_token(read[0]) if read is not None else None
        if read is None or name is None or not self.instance or name.instance != self.instance:
            return None
        secret = self._secret()
        if not secret or not hmac.compare_digest(job_key(secret, name.job).encode(), read[1].encode()):
            raise UnauthorizedError("the token of this step is wrong")
        return self.identity(read[0], peer)

    def lives(self, attempt_token: str) -> bool:
        """Whether the attempt does, as far as is known here."""
        name = read_attempt_token(attempt_token)
        if self._running is None or name is None:
            return True
        found = self._running(name)
        return found is not None and found.token == attempt_token

    def identity(self, attempt_token: str, peer: str) -> Identity:
        """Who a step is whose attempt is known.

        Raises:
            UnauthorizedError: the attempt does not live.
        """
        name = read_attempt_token(attempt_token)
        if name is None or name.instance != self.instance:
            raise UnauthorizedError("this is not a step of this HAL")
        token = f"step {name.job}.{name.task}.{name.attempt}"
        if self._running is None:
            user = ASK_THE_LEADER.format(name.job)
            return Identity(user=user, role=Role.USER, peer=peer, token=token, step=attempt_token)
        found = self._running(name)
        if found is None or found.token != attempt_token:
            raise UnauthorizedError(
                f"{token} has ended, and its rights with it", hint="send the request from outside the job"
            )
        scope = Scope(accounts=(found.account,), queues=(found.queue,))
        return Identity(user=found.user, role=Role.USER, peer=peer, token=token, scope=scope, step=attempt_token)
