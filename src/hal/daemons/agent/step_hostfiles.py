"""The nodes that elastic jobs have, as files of their bases: written before a base's first step begins, replaced
whenever extensions have come or gone, removed when it has ended.

What is in a file is known from the controller alone; a change whose file says it already is none, so a controller may
repeat itself. Where this machine has no file system in memory, there are no files, and bases only get their signals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from msgspec.structs import replace

from hal.core.model import StepId
from hal.core.model.rank_variables import hostfile
from hal.daemons.agent.secret_files import Account, SecretFiles
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.agent_keeper import Exits, Refused, Signal, Start, StepTemplate
from hal.wire.frames.controller_agent import JobNodes
from hal.wire.frames.conversation import Frame

HOSTS: Final = "hosts"
"""The file in the step's own directory."""
Accounts = Callable[[Collection[str]], Awaitable[Mapping[str, Account | None]]]
"""As whom steps of users run here."""


class StepHostfiles:
    """Of one node."""

    def __init__(self, files: SecretFiles | None, accounts: Accounts, log: BudgetedLog) -> None:
        """
        Args:
            files: where they are; None: nowhere.
            accounts: those that the name service does not answer for are left out.
        """
        self._files = files
        self._accounts = accounts
        self._log = log
        self._nodes: dict[StepId, tuple[str, ...]] = {}
        """What each base was last told."""

    async def put(self, frame: Start) -> Start:
        """Write the files of the bases that are about to begin, and say in their templates where they are."""
        if not any(template.hostfile for template in frame.templates):
            return frame
        asking = [one for one in frame.steps if not one.step.rank and one.template < len(frame.templates)]
        asking = [one for one in asking if frame.templates[one.template].hostfile]
        templates: dict[int, StepTemplate] = {}
        if self._files is not None and self._files.available and asking:
            accounts = await self._accounts({frame.templates[one.template].user for one in asking})
            for one in asking:
                template = frame.templates[one.template]
                if template.user not in accounts:
                    continue
                try:
                    text = _text(one.nodes, template.hostfile)
                    base = self._files.put(one.step, {HOSTS: text}, accounts[template.user])
                except OSError as error:
                    self._log.warning("a step begins without a hostfile", step=str(one.step), error=str(error))
                    continue
                templates[one.template] = replace(template, hostfile_dir=base)
        for one in asking:
            self._nodes[one.step] = one.nodes
        changed = tuple(templates.get(at, template) for at, template in enumerate(frame.templates))
        return replace(frame, templates=changed)

    def renew(self, frame: JobNodes) -> Signal | None:
        """Replace the file of a base; the signal that it is sent then. None: it knows that already."""
        text = _text(frame.nodes, frame.slots)
        known = self._nodes.get(frame.step) == frame.nodes
        self._nodes[frame.step] = frame.nodes
        if known:
            return None
        if self._files is not None:
            try:
                if not self._files.replace(frame.step, HOSTS, text):
                    return None  # an earlier agent has written the same
            except OSError as error:
                self._log.warning("a hostfile was not replaced", step=str(frame.step), error=str(error))
        return Signal(epoch=frame.epoch, steps=(frame.step,), name=frame.signal)

    def record_ends(self, frame: Frame) -> None:
        """Remove the files of steps that have ended, or will not begin."""
        match frame:
            case Exits():
                ended = [one.step for one in frame.exits]
            case Refused():
                ended = [one.step for one in frame.steps]
            case _:
                return
        for step in ended:
            if self._nodes.pop(step, None) is not None and self._files is not None:
                self._files.remove(step)

    def sweep(self, held: Collection[StepId]) -> None:
        """Remove what belongs to none of these steps."""
        for step in self._nodes.keys() - held:
            del self._nodes[step]
        if self._files is not None:
            self._files.sweep(held)


def _text(nodes: Collection[str], slots: int) -> bytes:
    """A line for each node, as `hal hostfile` writes it."""
    lines = hostfile(list(nodes), [slots] * len(nodes), "slots")
    return "".join(f"{line}\n" for line in lines).encode()
