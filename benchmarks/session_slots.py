"""A broker with a thousand slots: how many tasks a second it hands out, and whether its memory stays what it is.

The broker is the real one. The slots are connections of a few processes that answer at once, so that the broker is what
is measured; the client sends blocks of tasks and checks that each is answered once. `broker-cpu` is the broker's own
processor time for a task, which says more than a rate on a machine where the others need the same cores. Memory is
compared from a tenth of the tasks to the end.
Prints JSON lines: `python benchmarks/session_slots.py [--tasks N] [--slots N] [--processes N]`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from hal.runtime.exchange import remove_exchange
from hal.runtime.frame_link import FrameLink, dial
from hal.runtime.session_file import SessionFile, new_session_file, parse_address, private_directory, write_session_file
from hal.wire.agree import SPOKEN
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.sessions import (
    SESSIONS,
    SIZE_BYTES,
    AskNumbers,
    OpenSession,
    RecallTasks,
    RunTasks,
    SessionFrame,
    SessionNumbers,
    SessionOpened,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksDone,
    TasksReturned,
)
from hal.wire.roles import Role

TASKS: Final = 5_000_000
SLOTS: Final = 1_000
PROCESSES: Final = 2
BLOCK_TASKS: Final = 1_024
TASK: Final = b"\x80\x05N."
"""Argument and result of a task: None, pickled."""
TARGET: Final = 200_000
FLAT_KIB: Final = 8 << 10
"""What memory may grow by: what allocators keep."""
READ_BYTES: Final = 1 << 18
DIAL_S: Final = 30.0


def opened(session: SessionFile, role: Role) -> tuple[FrameLink[SessionFrame], SessionOpened]:
    """Open the session."""
    place = parse_address(session.listen[0])
    assert isinstance(place, Path)
    link = dial(place, SESSIONS, DIAL_S)
    link.send(OpenSession(versions=SPOKEN, role=role, session=session.id, token=session.token, pid=os.getpid()))
    first, *others = link.receive()
    if not isinstance(first, SessionOpened):
        sys.exit(f"the broker refuses: {first}")
    link.put_back(others)
    return link, first


class SimulatedSlot:
    """One connection that answers what it is sent at once."""

    def __init__(self, session: SessionFile) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(parse_address(session.listen[0])))
        self._decoder: FrameDecoder[SessionFrame] = FrameDecoder(SESSIONS)
        hello = OpenSession(
            versions=SPOKEN, role=Role.WORKER, session=session.id, token=session.token, name="simulated"
        )
        self.sock.sendall(encode(hello))

    def answer(self) -> bool:
        """Read what is there and answer it; returns whether the connection goes on."""
        try:
            data = self.sock.recv(READ_BYTES)
        except OSError:
            return False
        if not data:
            return False
        answers = []
        for frame in self._decoder.feed(data):
            match frame:
                case RunTasks():
                    count = len(frame.sizes) // SIZE_BYTES
                    done = TasksDone(
                        run=frame.run,
                        index=0,
                        statuses=bytes(count),
                        sizes=frame.sizes,
                        payload=TASK * count,
                        took_us=count,
                    )
                    answers.append(encode(done))
                case RecallTasks():
                    answers.append(encode(TasksReturned(run=0, index=0)))
                case _:
                    pass
        if answers:
            try:
                self.sock.sendall(b"".join(answers))
            except OSError:
                return False
        return True


def be_slots(session: SessionFile, count: int) -> None:
    """Be so many slots until the session is over."""
    slots = {}
    poll = select.epoll()
    for _ in range(count):
        slot = SimulatedSlot(session)
        slots[slot.sock.fileno()] = slot
        poll.register(slot.sock, select.EPOLLIN)
    while slots:
        for fd, _ in poll.poll():
            if not slots[fd].answer():
                poll.unregister(fd)
                slots.pop(fd).sock.close()


class Answers:
    """What was sent and not answered, task by task."""

    def __init__(self) -> None:
        self._open: dict[int, bytearray] = {}
        self.unanswered = 0
        self.answered = 0

    def expect(self, first: int, count: int) -> None:
        self._open[first] = bytearray(count)
        self.unanswered += count

    def take(self, frame: TaskResults) -> None:
        """Note results; a task that is answered twice, or not as it should be, ends the program."""
        count = len(frame.statuses)
        seen = self._open[frame.block]
        if any(seen[frame.index : frame.index + count]) or any(frame.statuses) or frame.payload != TASK * count:
            sys.exit(f"tasks {frame.index} to {frame.index + count} of block {frame.block} were answered wrongly")
        seen[frame.index : frame.index + count] = b"\1" * count
        if all(seen):
            del self._open[frame.block]
        self.unanswered -= count
        self.answered += count


def memory_kib(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_slots(link: FrameLink[SessionFrame], slots: int) -> None:
    """Until all are there."""
    deadline = time.monotonic() + DIAL_S
    while time.monotonic() < deadline:
        link.send(AskNumbers())
        match link.receive():
            case [SessionNumbers() as numbers] if numbers.slots == slots:
                return
        time.sleep(0.01)
    sys.exit("not all slots have come")


def drive(session: SessionFile, broker: int, tasks: int, slots: int) -> dict[str, float]:
    """Send tasks as a client does, within its window; returns what was measured."""
    link, welcome = opened(session, Role.CLIENT)
    wait_for_slots(link, slots)
    function = (welcome.number << 32) + 1
    link.send(StoreObject(ref=function, data=TASK))
    window = welcome.window_tasks - BLOCK_TASKS
    answers, sent, settled, early = Answers(), 0, max(tasks // 10, min(2 * window, tasks // 2)), 0
    began, began_cpu = time.perf_counter(), cpu_s(broker)
    while answers.answered < tasks:
        frames = []
        while sent < tasks and answers.unanswered <= window:
            count = min(BLOCK_TASKS, tasks - sent)
            sizes = len(TASK).to_bytes(SIZE_BYTES, "little") * count
            frames.append(SubmitTasks(first=sent, function=function, sizes=sizes, payload=TASK * count))
            answers.expect(sent, count)
            sent += count
        if frames:
            link.send(*frames)
        received = link.receive()
        if not received:
            sys.exit("the broker closed the connection")
        for frame in received:
            if isinstance(frame, TaskResults):
                answers.take(frame)
        if not early and answers.answered >= settled:
            early = memory_kib(broker)
    took = time.perf_counter() - began
    used = cpu_s(broker) - began_cpu
    late = memory_kib(broker)
    link.close()
    return {"rate": tasks / took, "cpu_us": 1e6 * used / tasks, "early_kib": early, "late_kib": late}


def say(bench: str, value: float, unit: str, **more: Any) -> None:
    print(json.dumps({"bench": f"session-slots-{bench}", "value": value, "unit": unit, **more}), flush=True)


def measure(tasks: int, slots: int, processes: int) -> None:
    directory = private_directory()
    file, session = directory / "session.json", new_session_file(directory)
    write_session_file(file, session)
    argv = [sys.executable, "-m", "hal.daemons.broker", "--session", str(file)]
    broker = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    broker.stdout.readline()
    each = [slots // processes + (number < slots % processes) for number in range(processes)]
    others = [multiprocessing.Process(target=be_slots, args=(session, count)) for count in each]
    try:
        for process in others:
            process.start()
        found = drive(session, broker.pid, tasks, slots)
        grown = found["late_kib"] - found["early_kib"]
        say("rate", found["rate"], "tasks/s", target=TARGET, slots=slots, tasks=tasks)
        say("broker-cpu", found["cpu_us"], "µs", better="lower", note="a task, of the broker alone")
        say("growth", grown / 1024, "MiB", target=FLAT_KIB / 1024, better="lower", holds=grown <= FLAT_KIB,
            note=f"of {found['early_kib'] / 1024:.0f} MiB, from a tenth of the tasks to the end")  # fmt: skip
    finally:
        broker.terminate()
        broker.wait()
        broker.stdout.close()
        for process in others:
            process.join()
        shutil.rmtree(directory)
        remove_exchange(Path(f"/dev/shm/hal-session-{session.id}"))


def main() -> int:
    parser = argparse.ArgumentParser(description="a broker with many slots")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="that the slots are in")
    arguments = parser.parse_args()
    measure(arguments.tasks, arguments.slots, arguments.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
