"""The notes of steps at gates, as the agent writes them: beside its loop, in the order in which it asks for it."""

from __future__ import annotations

from functools import partial

from hal.core.model.ids import StepId
from hal.daemons.agent.gate_notes import GateNote, GateNotes
from hal.daemons.agent.gated_step import GatedStep, Phase
from hal.runtime.identity import ProcessIdentity
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLog


class StepNotes:
    """Those of one node."""

    def __init__(self, runtime: Runtime, notes: GateNotes, log: BudgetedLog) -> None:
        self._runtime = runtime
        self._notes = notes
        self._log = log

    async def load(self) -> list[GateNote]:
        """Read what an earlier agent has left of this boot; notes of other boots are dropped."""
        left = []
        for note in await self._runtime.run_blocking(self._notes.load):
            if note.boot_id == self._runtime.boot_id:
                left.append(note)
            else:
                await self.drop(note.step)
        return left

    async def save(self, gated: GatedStep) -> None:
        """Note a step.

        Raises:
            OSError: it cannot be written.
        """
        # From now on: whoever drops it meanwhile is carried out after this, on the same lane.
        gated.noted = True
        await self._runtime.run_blocking(partial(self._notes.save, self._note(gated)))

    async def save_for_services(self, gated: GatedStep) -> None:
        """Note that services work for it, so that a successor can tell them that it went away; unless it has."""
        if not gated.noted and gated.phase is Phase.ENTERING:
            try:
                await self.save(gated)
            except OSError as error:
                self._log.warning("a gate is not noted", step=str(gated.step), reason=str(error))

    def save_script(self, gated: GatedStep, script: ProcessIdentity) -> None:
        """Note the process of its newest script, at once."""
        try:
            self._notes.save(self._note(gated, script))
        except OSError as error:
            self._log.warning("a script is not noted", step=str(gated.step), reason=str(error))

    async def drop(self, step: StepId) -> None:
        """Delete the note of a step, if there is one."""
        try:
            await self._runtime.run_blocking(partial(self._notes.drop, step))
        except OSError as error:
            self._log.warning("a gate's note stays", step=str(step), reason=str(error))

    def drop_later(self, step: StepId) -> None:
        """`drop`, in a task of its own."""
        self._runtime.spawn_task(self.drop(step), f"drop the note of {step}")

    def _note(self, gated: GatedStep, script: ProcessIdentity | None = None) -> GateNote:
        return GateNote(
            step=gated.step,
            boot_id=self._runtime.boot_id,
            env=gated.env,
            script=script,
            gates=gated.gates,
            user=gated.user,
        )
