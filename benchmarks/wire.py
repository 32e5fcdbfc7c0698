"""CPU a task on the wire: a start goes out, an exit comes back, an acknowledgement goes out, over a Unix socket.

Both ends run in this process on uvloop, so the figures are the CPU time of both together, from frame to frame; what
controller and keeper do with the frames is not in them. `alone`: one task at a time, waiting for its exit. `in frames
of 500`: as under load. The codec alone: one Start frame of 500 steps encoded and decoded.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import uvloop

from hal.core.model.ids import StepId
from hal.runtime.home import Home
from hal.runtime.interface import Connection, UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.agent_keeper import ExitCause, Exits, ExitsAck, Start, StepExit, StepStart, StepTemplate, Usage
from hal.wire.frames.controller_agent import CONTROLLER_AGENT

RUNS: Final = 5
TASKS_TOGETHER: Final = 100_000
TASKS_ALONE: Final = 2_000
PER_FRAME: Final = 500


def start_frame(first: int, count: int) -> Start:
    """A start of `count` tasks of one array."""
    steps = tuple(
        StepStart(
            step=StepId(1, task, 1, 0),
            template=0,
            token="8f14e45fceea167a5a36dedd4bea2543",
            nodes=("n1",),
            array_index=task,
            array_count=TASKS_TOGETHER,
            started_at_ms=1_767_225_600_000,
        )
        for task in range(first, first + count)
    )
    template = StepTemplate(command=("/bin/true",), env={"PATH": "/usr/bin:/bin"}, cpu_milli=1_000)
    return Start(epoch=1, stamp_boot_ms=3_600_000, templates=(template,), steps=steps)


async def keep(connection: Connection) -> None:
    """As a keeper whose steps end at once."""
    while (frame := await connection.receive()) is not None:
        if isinstance(frame, Start):
            exits = tuple(
                StepExit(
                    step=start.step,
                    cause=ExitCause.EXITED,
                    code=0,
                    signal=0,
                    started_ms=start.started_at_ms,
                    ended_ms=start.started_at_ms,
                    usage=Usage(user_ms=1, system_ms=1, max_rss_bytes=2_000_000),
                    message="",
                )
                for start in frame.steps
            )
            connection.send_nowait(Exits(exits=exits))


async def together(connection: Connection) -> int:
    """All frames are sent as fast as they go; returns how many tasks ended."""
    frames = [start_frame(first, PER_FRAME) for first in range(0, TASKS_TOGETHER, PER_FRAME)]
    ended = 0

    async def send_all() -> None:
        for frame in frames:
            await connection.send(frame)

    sending = asyncio.create_task(send_all())
    while ended < TASKS_TOGETHER and isinstance(frame := await connection.receive(), Exits):
        connection.send_nowait(ExitsAck(steps=tuple(one.step for one in frame.exits)))
        ended += len(frame.exits)
    await sending
    return ended


async def alone(connection: Connection) -> int:
    """One task after the other, each waiting for the exit of the one before."""
    for task in range(TASKS_ALONE):
        connection.send_nowait(start_frame(task, 1))
        frame = await connection.receive()
        assert isinstance(frame, Exits)
        connection.send_nowait(ExitsAck(steps=(frame.exits[0].step,)))
    return TASKS_ALONE


async def measure(work: Callable[[Connection], Awaitable[int]], home: Home, file: LogFile) -> float:
    """CPU seconds a task, both ends."""
    runtime = RealRuntime("bench", home, open_log(file, "bench"), seed=1)
    address = UnixAddress(home.wire_socket())
    listener = await runtime.listen(address, keep)
    connection = await runtime.connect(address)
    before = time.process_time()
    tasks = await work(connection)
    spent = time.process_time() - before
    connection.close()
    await listener.close()
    await runtime.close()
    return spent / tasks


def codec_alone() -> float:
    """CPU seconds a step, encoding and decoding."""
    frame = start_frame(0, PER_FRAME)
    before = time.process_time()
    for _ in range(100):
        FrameDecoder(CONTROLLER_AGENT).feed(encode(frame))
    return (time.process_time() - before) / 100 / PER_FRAME


def report(name: str, seconds: list[float], target_us: float | None, note: str) -> None:
    line: dict[str, object] = {
        "bench": name,
        "value": round(statistics.median(seconds) * 1e6, 2),
        "unit": "us CPU/task",
        "better": "lower",
        "note": note,
    }
    if target_us is not None:
        line["target"] = target_us
    print(json.dumps(line), flush=True)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        home.create()
        file = LogFile(home.log_file("bench"))

        def run(work: Callable[[Connection], Awaitable[int]]) -> list[float]:
            seconds = []
            for _ in range(RUNS):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    seconds.append(runner.run(measure(work, home, file)))
            return seconds

        note = "start + exit + acknowledgement, both ends"
        report("wire-frames-of-500", run(together), None, note)
        report("wire-alone", run(alone), 250.0, note)
        report("wire-codec", [codec_alone() for _ in range(RUNS)], None, "a Start frame of 500 steps, once each way")
        home.drop_socket_dir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
