"""Secrets between the controller and a node's steps: put where a step finds them before its start reaches the keeper,
removed when it has ended, however it ended.

The values of a start arrive in frames just before it and are in this process's memory until then. Who dies when:
without the agent, files stay until the next agent compares them with what its keeper holds; without the keeper, the
next keeper reports the exits that the agent waits for; after a restart of the host, the memory file system is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle.outcome import SECRETS_ELSEWHERE, SECRETS_UNDELIVERED
from hal.core.model import HALError, StepId
from hal.daemons.agent.secret_files import Account, NoMemoryFilesError, SecretFiles, account_of
from hal.runtime.interface import Lane, Runtime
from hal.wire.frames.agent_keeper import Exits, Refusal, Refused, Start, StepStart, StepTemplate
from hal.wire.frames.controller_agent import Secrets
from hal.wire.frames.conversation import Frame

MAX_WAITING_BYTES: Final = 64 << 20
"""Values that wait for their start; beyond that, starts are refused."""
KEEP_ACCOUNT_MS: Final = 300_000
"""How long it is relied on that a user has an account."""
MAX_ACCOUNTS: Final = 10_000
"""Users whose account is remembered."""
LOOK_UP_S: Final = 5.0
"""How long starts wait for the name service."""


class StepSecrets:
    """Of one node."""

    def __init__(self, runtime: Runtime, files: SecretFiles, report: Callable[[Frame], None]) -> None:
        """
        Args:
            report: accepts refusals for the controller.
        """
        self._runtime = runtime
        self._files = files
        self._report = report
        self._waiting: dict[int, dict[str, bytes]] = {}
        """By job, until the start that follows."""
        self._waiting_bytes = 0
        self._accounts: dict[str, tuple[int, Account | None]] = {}
        """When each user was looked up, by the monotonic clock, and the account; oldest first."""

    @property
    def available(self) -> bool:
        """Whether this node can hold secrets."""
        return self._files.available

    def take(self, frame: Secrets) -> None:
        """Keep values until the start that they are for."""
        self._waiting_bytes += sum(map(len, frame.values))
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._waiting.clear()
            return
        for one in frame.jobs:
            values = self._waiting.setdefault(one.job, {})
            for name, position in one.files:
                if position < len(frame.values):
                    values[name] = frame.values[position]

    async def deliver(self, frame: Start) -> Start | None:
        """Put the secrets of the frame's steps in place, and forget their values.

        Returns: what may start now; None: nothing. The others were refused.
        """
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        if not any(template.secrets for template in frame.templates):
            return frame
        accounts = await self.accounts_of({template.user for template in frame.templates if template.secrets})
        templates: dict[int, StepTemplate] = {}
        passed: list[StepStart] = []
        refusals: list[Refusal] = []
        for start in frame.steps:
            template = frame.templates[start.template] if start.template < len(frame.templates) else None
            if template is None or not template.secrets:
                passed.append(start)
                continue
            try:
                base = self._put(start.step, template, waiting.get(start.step.job, {}), accounts)
            except OSError as error:
                refusals.append(_refusal(start.step, error))
                continue
            templates[start.template] = replace(template, secrets=(), secrets_dir=base)
            passed.append(start)
        if refusals:
            self._report(Refused(steps=tuple(refusals)))
        if not passed:
            return None
        changed = tuple(templates.get(at, template) for at, template in enumerate(frame.templates))
        return replace(frame, templates=changed, steps=tuple(passed))

    def record_ends(self, frame: Frame) -> None:
        """Remove what steps had that have ended, or will not begin."""
        match frame:
            case Exits():
                self._remove(one.step for one in frame.exits)
            case Refused():
                self._remove(one.step for one in frame.steps)
            case _:
                pass

    def sweep(self, held: Collection[StepId]) -> int:
        """Remove what belongs to none of these steps; returns how many directories that were."""
        return self._files.sweep(held)

    async def accounts_of(self, users: Collection[str]) -> dict[str, Account | None]:
        """As whom steps of these users run here; those of whom the name service says nothing are left out."""
        if not self._files.each_as_itself:
            return dict.fromkeys(users)
        found: dict[str, Account | None] = {}
        for user in users:
            at_ms, known = self._accounts.get(user, (0, None))
            if known is None or self._runtime.monotonic_ms() >= at_ms + KEEP_ACCOUNT_MS:
                try:
                    async with asyncio.timeout(LOOK_UP_S):
                        known = await self._runtime.run_blocking(partial(account_of, user), Lane.NAMES)
                except (TimeoutError, HALError):
                    continue
                self._accounts.pop(user, None)
                self._accounts[user] = (self._runtime.monotonic_ms(), known)
                while len(self._accounts) > MAX_ACCOUNTS:
                    del self._accounts[next(iter(self._accounts))]
            if known is not None:
                found[user] = known
        return found

    def _put(
        self, step: StepId, template: StepTemplate, values: dict[str, bytes], accounts: Mapping[str, Account | None]
    ) -> str:
        if template.user not in accounts:
            raise OSError(f"the account of user '{template.user}' could not be looked up on this node")
        missing = [name for name in template.secrets if name not in values]
        if missing:
            raise OSError(f"'{missing[0]}' did not arrive with its start")
        return self._files.put(step, {name: values[name] for name in template.secrets}, accounts[template.user])

    def _remove(self, steps: Iterable[StepId]) -> None:
        for step in steps:
            self._files.remove(step)


def _refusal(step: StepId, error: OSError) -> Refusal:
    code = SECRETS_ELSEWHERE if isinstance(error, NoMemoryFilesError) else SECRETS_UNDELIVERED
    return Refusal(step, code, f"its secrets cannot be put on this node: {error.strerror or error}")
