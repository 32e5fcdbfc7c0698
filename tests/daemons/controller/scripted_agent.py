"""An agent without processes: it speaks the wire to a real controller, and steps end as their command says.

`["exit", "3"]` exits with 3 at once; `["sleep"]` runs until it is stopped; `["echo", "text"]` writes text and exits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hal.core.model import StepId, UnreachableError
from hal.core.model.facts import Facts
from hal.core.model.step_token import step_token
from hal.runtime.interface import Address, Connection, Runtime
from hal.wire.agree import STEP_FEATURES
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    ExitsAck,
    Forget,
    Forgotten,
    Heartbeat,
    HeartbeatAck,
    LogChunk,
    ReadLog,
    Resize,
    Start,
    Started,
    StepExit,
    StepStart,
    StepStarted,
    StepTemplate,
    Stop,
    Usage,
)
from hal.wire.frames.controller_agent import FailingCheck, Health, Planes, Readiness, Secrets, StepReadiness
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, HeldStep, Hello, Welcome
from hal.wire.roles import Role


class ScriptedAgent:
    """One node."""

    def __init__(
        self,
        runtime: Runtime,
        address: Address,
        name: str = "n1",
        *,
        cpu_milli: int = 4_000,
        gpu_milli: int = 0,
        boot_id: str = "boot1",
        running: dict[StepId, StepTemplate] | None = None,
        facts: Facts | None = None,
        labels: dict[str, str] | None = None,
        features: tuple[str, ...] = (),
        knows: tuple[str, ...] = STEP_FEATURES,
    ) -> None:
        """
        Args:
            running: what it already runs when it joins, as an agent before it did.
            features: of the conversation.
            knows: features of templates; an older keeper knows fewer.
        """
        self._runtime = runtime
        self._address = address
        self.name = name
        self.boot_id = boot_id
        self.facts = facts or Facts()
        self.labels = labels or {}
        self.features = (*features, *knows)
        self.capacity = {"cpu": cpu_milli, "memory": 8 << 30} | ({"gpu": gpu_milli} if gpu_milli else {})
        self.running: dict[StepId, StepTemplate] = dict(running or {})
        self.exits: dict[StepId, StepExit] = {}
        """Not acknowledged yet."""
        self.started: list[StepId] = []
        """Every step that was ever spawned, in order."""
        self.templates: list[StepTemplate] = []
        self.secrets: dict[int, dict[str, bytes]] = {}
        """Values that were sent to it, by job and name."""
        self.tokens: list[str] = []
        """Of the attempts that it started, in order."""
        self.outputs: dict[StepId, bytes] = {}
        self.output_error = ""
        self.deleted_ms = 0
        """When this node deleted outputs by its own bounds."""
        """What it says instead of them."""
        self.goodbye: Goodbye | None = None
        self.welcome: Welcome | None = None
        self.resized: list[int] = []
        """New walltimes, in order."""
        self.planes: list[Planes] = []
        """What it was told of planes, in order."""
        self.forgets: list[Forget] = []
        """What it was asked to delete, in order."""
        self.answers_forgets = True
        self.deaf = False
        """Frames are read and forgotten."""
        self.seen_epoch = 0
        """Highest leader epoch that it says it has heard."""
        self.changed = asyncio.Event()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def hello(self) -> Hello:
        """What it says first."""
        held = tuple(HeldStep(step, True, 7, 1) for step in self.running)
        held += tuple(HeldStep(step, False, 7, 1) for step in self.exits)
        return Hello(
            role=Role.AGENT,
            versions=(1, 1),
            features=self.features,
            name=self.name,
            boot_id=self.boot_id,
            pid=1,
            epoch=self.seen_epoch,
            capacity=self.capacity,
            labels={"node": self.name, **self.labels},
            facts=self.facts,
            held=held,
        )

    async def join(self) -> None:
        """Dial, say hello, and serve from then on."""
        assert await self._dialled(), self.goodbye

    async def try_to_join(self) -> bool:
        """As `join`; False when nobody answers, or a follower does."""
        try:
            return await self._dialled()
        except UnreachableError:
            return False

    async def _dialled(self) -> bool:
        connection = await self._runtime.connect(self._address)
        await connection.send(self.hello())
        answer = await connection.receive(timeout_ms=5_000)
        if not isinstance(answer, Welcome):
            assert answer is None or isinstance(answer, Goodbye), answer
            self.goodbye = answer
            connection.close()
            return False
        self.welcome = answer
        self._connection = connection
        self._send(Heartbeat(stamp_boot_ms=1_000))
        if self.exits:
            self._send(Exits(exits=tuple(self.exits.values())))
        self._task = asyncio.ensure_future(self._serve(connection))
        return True

    def moved_to(self, runtime: Runtime) -> None:
        """Dial from another runtime from now on."""
        self._runtime = runtime
        self.changed = asyncio.Event()

    def credential(self) -> str:
        """What the step that it started last shows to the controller."""
        return step_token(self.tokens[-1], self.templates[-1].key)

    def says_health(self, *failing: str) -> None:
        """These checks of the node fail."""
        self._send(Health(failing=tuple(FailingCheck(name, f"{name} is bad", 5) for name in failing)))

    def says_ready(self, *steps: StepId, ready: bool = True, ports: tuple[int, ...] = (), reason: str = "") -> None:
        """These steps of services are ready, or are not."""
        now_ms = self._runtime.now_ms()
        self._send(Readiness(steps=tuple(StepReadiness(step, ready, now_ms, reason, ports) for step in steps)))

    async def leave(self) -> None:
        """The connection is lost; what runs goes on."""
        assert self._connection is not None
        assert self._task is not None
        self._connection.close()
        await self._task

    def end(self, step: StepId, code: int = 0, cause: ExitCause = ExitCause.EXITED) -> None:
        """A running step ends."""
        del self.running[step]
        now_ms = self._runtime.now_ms()
        signal = code - 128 if cause is not ExitCause.EXITED and code > 128 else 0
        self.exits[step] = StepExit(step, cause, code, signal, now_ms, now_ms, Usage(3, 1, 1 << 20, 0, 0), "")
        self._send(Exits(exits=(self.exits[step],)))

    async def until(self, holds: Callable[[ScriptedAgent], bool], limit_s: float = 10.0) -> None:
        """Wait until something is true of this agent."""
        async with asyncio.timeout(limit_s):
            while not holds(self):
                self.changed.clear()
                await self.changed.wait()

    async def _serve(self, connection: Connection) -> None:
        while (frame := await connection.receive()) is not None:
            self._received(frame)
            self.changed.set()
        self._connection = None
        self.changed.set()

    def _received(self, frame: Frame) -> None:
        if self.deaf:
            return
        match frame:
            case Planes():
                self.planes.append(frame)
            case Start():
                self.templates.extend(frame.templates)
                for start in frame.steps:
                    self._start(start, frame.templates[start.template])
            case Stop():
                for step in frame.steps:
                    if step in self.running:
                        self.end(step, 143, ExitCause(str(frame.reason)) if _is_cause(frame) else ExitCause.CANCELLED)
            case ExitsAck():
                for step in frame.steps:
                    self.exits.pop(step, None)
            case ReadLog():
                data = self.outputs.get(frame.step, b"")
                at = max(len(data) + frame.offset, 0) if frame.offset < 0 else min(frame.offset, len(data))
                self._send(
                    LogChunk(
                        request=frame.request,
                        step=frame.step,
                        stream=frame.stream,
                        offset=at,
                        data=data[at : at + frame.limit],
                        size=len(data),
                        ended=frame.step not in self.running,
                        error=self.output_error,
                        deleted_ms=self.deleted_ms,
                        deleted_by="outputs_days = 5" if self.deleted_ms else "",
                    )
                )
            case Forget():
                self.forgets.append(frame)
                if self.answers_forgets:
                    self._send(Forgotten(request=frame.request))
            case Secrets():
                for one in frame.jobs:
                    named = {name: frame.values[position] for name, position in one.files}
                    self.secrets.setdefault(one.job, {}).update(named)
            case Resize():
                self.resized.append(frame.walltime_ms)
            case Goodbye():
                self.goodbye = frame
            case HeartbeatAck():
                pass
            case _:
                raise AssertionError(f"unexpected {frame}")

    def _start(self, start: StepStart, template: StepTemplate) -> None:
        if start.step in self.running or start.step in self.exits:
            return
        self.started.append(start.step)
        self.tokens.append(start.token)
        self.running[start.step] = template
        self._send(Started(steps=(StepStarted(start.step, 7, self._runtime.now_ms()),)))
        if template.command[0] == "exit":
            self.end(start.step, int(template.command[1]))
        elif template.command[0] == "echo":
            self.outputs[start.step] = " ".join(template.command[1:]).encode() + b"\n"
            self.end(start.step)

    def _send(self, frame: Frame) -> None:
        if self._connection is not None:
            self._connection.send_nowait(frame)
        self.changed.set()


def _is_cause(stop: Stop) -> bool:
    return str(stop.reason) in {cause.value for cause in ExitCause}
