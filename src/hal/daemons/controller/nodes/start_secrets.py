"""The secrets that go with starts: values for the one node that runs them, on the connection that carries the start.

Called after the commit of the starts. Pure apart from what it is given. A start whose secret is gone, or whose node
cannot have it, is refused here and never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hal.core.lifecycle.outcome import SECRET_MISSING, SECRETS_ELSEWHERE
from hal.core.model import HALError
from hal.daemons.controller.access.secrets import SecretBook, SecretId
from hal.planes.tasks import TaskPlane
from hal.runtime.interface import Connection
from hal.wire.bounds import MAX_ITEMS
from hal.wire.frames.agent_keeper import Refusal, Start, StepStart, StepTemplate
from hal.wire.frames.controller_agent import JobSecrets, Secrets

FRAME_BYTES = 4 << 20
"""Bytes of values in one frame, about; half of what a frame may have."""

Unsent = tuple[StepTemplate, StepStart]
Values = Mapping[int, Mapping[str, tuple[SecretId, bytes]]]
"""By job and name."""


class StartSecrets:
    """Of one controller."""

    def __init__(self, book: SecretBook, plane: TaskPlane) -> None:
        self._book = book
        self._plane = plane

    def refusal_of_node(self, connection: Connection, *, capable: bool) -> str:
        """Why that node gets no secrets; '' if it may."""
        if not capable:
            return "its agent is too old for secrets, or its machine has no tmpfs"
        if connection.certified is None and connection.peer is None:
            return "its connection is not encrypted"
        return ""

    def values_for(self, unsent: Sequence[Unsent], refusal: str) -> tuple[list[Unsent], list[Refusal], Values]:
        """Open what these starts need.

        Args:
            refusal: why their node gets none; ''.
        Returns: the starts that may be sent; refusals of the others; the values.
        """
        values: dict[int, dict[str, tuple[SecretId, bytes]]] = {}
        missing: dict[int, str] = {}
        opened: dict[SecretId, bytes] = {}
        sent: list[Unsent] = []
        refusals: list[Refusal] = []
        for template, start in unsent:
            job = start.step.job
            if template.secrets and refusal:
                refusals.append(Refusal(start.step, SECRETS_ELSEWHERE, refusal))
                continue
            if template.secrets and job not in values and job not in missing:
                try:
                    values[job] = self._opened(job, template, opened)
                except HALError as error:
                    missing[job] = error.message
            if template.secrets and job in missing:
                refusals.append(Refusal(start.step, SECRET_MISSING, missing[job]))
            else:
                sent.append((template, start))
        return sent, refusals, values

    def _opened(
        self, job: int, template: StepTemplate, opened: dict[SecretId, bytes]
    ) -> dict[str, tuple[SecretId, bytes]]:
        """
        Raises:
            NotFoundError: one is gone, or its user may not use it any more.
            SealError: one cannot be opened.
        """
        live = self._plane.job(job)
        account = live.account if live is not None else ""
        found: dict[str, tuple[SecretId, bytes]] = {}
        for name in template.secrets:
            secret = self._book.find(name, user=template.user, account=account, accounts=self._plane.policy.accounts)
            if secret.id not in opened:
                opened[secret.id] = self._book.value(secret)
            found[name] = (secret.id, opened[secret.id])
        return found


def secret_frames(start: Start, values: Values) -> Iterator[Secrets]:
    """The frames that go just before that start."""
    jobs = dict.fromkeys(step.step.job for step in start.steps if start.templates[step.template].secrets)
    wanted = [(job, name, *value) for job in jobs for name, value in values[job].items()]
    while wanted:
        frame, taken = _frame(wanted)
        yield frame
        wanted = wanted[taken:]


def _frame(wanted: Sequence[tuple[int, str, SecretId, bytes]]) -> tuple[Secrets, int]:
    """A frame with the first of these, and how many they are."""
    positions: dict[SecretId, int] = {}
    values: list[bytes] = []
    files: dict[int, list[tuple[str, int]]] = {}
    size = taken = 0
    for job, name, which, value in wanted:
        if which not in positions:
            if values and (size + len(value) > FRAME_BYTES or len(values) >= MAX_ITEMS):
                break
            positions[which] = len(values)
            values.append(value)
            size += len(value)
        files.setdefault(job, []).append((name, positions[which]))
        taken += 1
    return Secrets(values=tuple(values), jobs=_jobs(files.items())), taken


def _jobs(files: Iterable[tuple[int, list[tuple[str, int]]]]) -> tuple[JobSecrets, ...]:
    return tuple(JobSecrets(job, tuple(named)) for job, named in files)
