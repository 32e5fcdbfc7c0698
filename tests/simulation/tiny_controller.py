"""A controller small enough to be seen to be right: it only gets a list of steps run, with its notes on the disk.

It is the other end for simulations of agent and keeper alone; the simulations of the whole system use the real one.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.model import StepId
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.wire.agree import agree
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    ExitsAck,
    Heartbeat,
    HeartbeatAck,
    Refused,
    Start,
    StepExit,
    StepStart,
    StepTemplate,
)
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.simulation.machine import Work


class Notes(Struct):
    """What survives the controller: how far each task is."""

    work: dict[int, Work]
    """By task of job 1."""
    attempt: dict[int, int]
    """The attempt that runs or is to run; absent once the task is over."""
    exits: dict[StepId, StepExit]
    epoch: int = 0

    @classmethod
    def of(cls, work: list[Work]) -> Notes:
        return cls(dict(enumerate(work)), dict.fromkeys(range(len(work)), 1), {})

    @property
    def done(self) -> bool:
        return not self.attempt


class TinyController:
    """Serves one agent at a time."""

    def __init__(self, runtime: Runtime, notes: Notes) -> None:
        self._runtime = runtime
        self._notes = notes
        self._stamp = 0

    async def run(self) -> None:
        self._notes.epoch += 1
        await self._runtime.listen(UnixAddress(self._runtime.paths.wire_socket()), self._serve)
        await self._runtime.stopping.wait()

    async def _serve(self, agent: Connection) -> None:
        hello = await agent.receive(5_000)
        if not isinstance(hello, Hello):
            return
        version, features = agree(hello)
        agent.send_nowait(
            Welcome(role=Role.CONTROLLER, version=version, features=features, epoch=self._notes.epoch, heartbeat_ms=500)
        )
        known = {held.step for held in hello.held}
        greeted = False
        while (frame := await agent.receive()) is not None:
            match frame:
                case Heartbeat():
                    agent.send_nowait(HeartbeatAck(stamp_boot_ms=frame.stamp_boot_ms, epoch=self._notes.epoch))
                    self._stamp = frame.stamp_boot_ms
                    if not greeted:
                        greeted = True
                        missing = [t for t, n in self._notes.attempt.items() if StepId(1, t, n, 0) not in known]
                        self._start(agent, missing)
                case Exits():
                    for exit_ in frame.exits:
                        await self._runtime.run_blocking(lambda e=exit_: self._note(e))  # type: ignore[misc]
                    agent.send_nowait(ExitsAck(steps=tuple(exit_.step for exit_ in frame.exits)))
                    again = [
                        e.step.task for e in frame.exits if self._notes.attempt.get(e.step.task, 0) > e.step.attempt
                    ]
                    self._start(agent, again)
                case Refused():
                    self._start(agent, [r.step.task for r in frame.steps if self._refused(r.step, r.code)])
                case _:
                    continue

    def _refused(self, step: StepId, code: str) -> bool:
        """Whether that means another attempt: of this one no process exists, nor ever will."""
        again = code in ("not-started", "no-lease") and self._notes.attempt.get(step.task) == step.attempt
        if again:
            self._notes.attempt[step.task] += 1
        return again

    def _note(self, exit_: StepExit) -> None:
        """An exit is durable; one that is reported again changes nothing."""
        task, attempt = exit_.step.task, exit_.step.attempt
        if self._notes.attempt.get(task) != attempt:
            return
        self._notes.exits[exit_.step] = exit_
        if exit_.cause is ExitCause.LOST:
            self._notes.attempt[task] = attempt + 1
        else:
            del self._notes.attempt[task]

    def _start(self, agent: Connection, tasks: list[int]) -> None:
        tasks = [task for task in dict.fromkeys(tasks) if task in self._notes.attempt]
        if not tasks or agent.closed:
            return
        templates = tuple(StepTemplate(command=tuple(self._notes.work[task].command())) for task in tasks)
        steps = tuple(
            StepStart(
                step=StepId(1, task, self._notes.attempt[task], 0),
                template=position,
                token=f"{task}.{self._notes.attempt[task]}",
                nodes=("n1",),
                array_index=task,
                array_count=len(self._notes.work),
                started_at_ms=self._runtime.now_ms(),
            )
            for position, task in enumerate(tasks)
        )
        agent.send_nowait(Start(epoch=self._notes.epoch, stamp_boot_ms=self._stamp, templates=templates, steps=steps))
