"""A plan of kills carried out on the real processes of one HAL; `hal up` for what does not come back by itself."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from hal.client.addresses.address import Address
from hal.client.rest.views import JobInfo
from hal.client.sync_client import Client
from hal.core.model import ConflictError, OverloadedError, StepId, UnreachableError
from hal.runtime.identity import ProcessIdentity, identify, kill, running
from tests.chaos.diary import Diary, Line
from tests.chaos.plan import NODE_NAMES, Move
from tests.chaos.records import patient_client
from tests.chaos.workload import Wanted
from tests.e2e.conftest import DEADLINE_S, LiveHal

LOOK_S: Final = 0.003
QUIET_S: Final = 1.0
"""Without a new line for so long, it is asked whether there is any work left."""
MAX_UPS: Final = 12
"""`hal up` that may be needed in one run: some are killed before they are done."""


class Kill(NamedTuple):
    """A SIGKILL that reached its process."""

    lines: int
    """Of the diary at that moment."""
    wall_ms: int
    victim: str
    pid: int
    step: StepId | None = None

    def __str__(self) -> str:
        return f"at {self.wall_ms} ms, {self.lines} lines: killed {self.victim}, pid {self.pid} {self.step or ''}"


class Ruin:
    """Somebody who kills, somebody who submits and cancels, and somebody who types `hal up` when it is needed."""

    def __init__(self, live: LiveHal, diary: Diary, work: list[Wanted], rng: random.Random) -> None:
        self.kills: list[Kill] = []
        self.notes: list[str] = []
        self.ids: dict[str, int] = {}
        """Of the jobs whose submission was answered, by name."""
        self.cancelled: set[str] = set()
        """Names of jobs whose cancellation was answered."""
        self._live = live
        self._diary = diary
        self._wanted = {job.name: job for job in work}
        self._rng = rng
        self._ups: list[subprocess.Popen[str]] = []
        self._asking = Client(Address(home=live.home), reconnect_s=0.0)
        self._people = _People(live)

    # ── what is done ──────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, jobs: list[Wanted]) -> None:
        """In one call; it is answered before this returns."""
        with self._live.client() as client:
            self._submitted(jobs, client)

    def play(self, moves: list[Move]) -> None:
        """One after the other, each when its line has appeared; those that no work is left for are not done."""
        for move in moves:
            if not self._reached(move.at):
                self.notes.append(f"no work was left for: {move}")
                continue
            _pause(move.delay_ms / 1000)
            for victim in move.victims:
                self._strike(victim)

    def until_ended(self) -> None:
        """Every job that ends by itself, or was cancelled, has ended, and nothing that was asked for is unanswered.

        Raises:
            AssertionError: not within the deadline.
        """
        self._until(lambda: self._people.idle, "somebody still waits for an answer")
        self._until(lambda: not self._live_jobs(), "jobs did not end")
        self._until(lambda: self._healed, "HAL did not come back")
        self._people.check()

    def close(self) -> None:
        """End what was begun here."""
        self._people.close()
        self._asking.close()
        for up in self._ups:
            if up.poll() is None:
                up.kill()
            up.communicate()

    # ── killing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _strike(self, victim: str) -> None:
        action, _, name = victim.partition(" ")
        if action == "submit":
            self._people.ask(lambda client: self._submitted([self._wanted[name]], client))
        elif action == "cancel":
            self._people.ask(lambda client: self._cancel(name, client))
        elif victim == "job":
            self._strike_step()
        else:
            process, _, node = victim.partition("-")
            if process in ("helper", "helpers"):
                found = helpers(self._live.root, node)
                chosen = found if process == "helpers" else found[: bool(found)]
                if process == "helper" and found:
                    chosen = [self._rng.choice(found)]
            else:
                identity = running(self._live.home.pid_file(victim))
                chosen = [identity] if identity else []
            for identity in chosen:
                self._kill(victim, identity)
        self._heal()

    def _strike_step(self) -> None:
        running_steps = [line for line in self._diary.running() if not self._endless(line)]
        self._rng.shuffle(running_steps)
        for line in running_steps:
            identity = step_process(self._live.root, line)
            if identity is not None:
                self._kill("job", identity, line.step)
                return

    def _kill(self, victim: str, identity: ProcessIdentity, step: StepId | None = None) -> None:
        lines = self._diary.size
        if kill(identity, signal.SIGKILL):
            self.kills.append(Kill(lines, time.time_ns() // 1_000_000, victim, identity.pid, step))

    def _endless(self, line: Line) -> bool:
        return any(self._wanted[name].endless for name, job in self.ids.items() if job == line.step.job)

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _submitted(self, jobs: list[Wanted], client: Client) -> None:
        answered = client.submit([job.spec for job in jobs])
        self.ids |= {wanted.name: int(job.id) for wanted, job in zip(jobs, answered, strict=True)}

    def _cancel(self, name: str, client: Client) -> None:
        outcome = client.cancel(self.ids[name])[0]
        self.notes.append(f"cancel {name}: {outcome}")
        if outcome.ok:
            self.cancelled.add(name)

    # ── hal up ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _healed(self) -> bool:
        self._heal()
        return all(up.poll() is not None for up in self._ups) and not self._missing()

    def _heal(self) -> None:
        """`hal up`, if something is gone that no other process of HAL starts again, and none is at work."""
        if self._ups and self._ups[-1].poll() is None:
            return
        missing = self._missing()
        if missing:
            assert len(self._ups) < MAX_UPS, f"{missing} did not come back after {MAX_UPS} times `hal up`"
            if self._ups and self._ups[-1].returncode:
                self.notes.append(f"hal up: exit code {self._ups[-1].returncode}: {self._ups[-1].communicate()[1]}")
            self.notes.append(f"hal up, for {', '.join(missing)}")
            self._ups.append(self._live.start("up"))

    def _missing(self) -> list[str]:
        home = self._live.home
        missing = [] if running(home.controller_pid) else ["controller"]
        return missing + [
            name for name in NODE_NAMES if not running(home.keeper_pid(name)) and not running(home.agent_pid(name))
        ]

    # ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _reached(self, lines: int) -> bool:
        """Wait for that line; False when there is no work left that could write it."""
        deadline_s = time.monotonic() + DEADLINE_S
        seen, since_s = -1, time.monotonic()
        while (size := self._diary.size) < lines:
            now_s = time.monotonic()
            assert now_s < deadline_s, f"no line {lines} within {DEADLINE_S} s, only {size}"
            if size != seen:
                seen, since_s = size, now_s
            elif now_s - since_s > QUIET_S:
                since_s = now_s
                if self._people.idle and not self._live_jobs():
                    return False
            self._heal()
            _pause(LOOK_S)
        return True

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"{what}: {self._live_jobs()}"
            self._heal()
            _pause(10 * LOOK_S)

    def _live_jobs(self) -> list[str]:
        """Jobs that have not ended and will, in words; while nobody answers there may be some."""
        try:
            jobs = list(self._asking.jobs())
        except (UnreachableError, OverloadedError) as error:
            return [f"nobody knows: {error}"]
        left = [job for job in jobs if not job.ended and not self._left_running(job)]
        return [f"{job.id} {job.name} {job.state} {job.counts}" for job in left]

    def _left_running(self, job: JobInfo) -> bool:
        wanted = self._wanted.get(job.name)
        return wanted is not None and wanted.endless and job.name not in self.cancelled and job.state == "running"


class _People:
    """Someone who asks HAL one thing after the other and waits for each answer, as long as that takes."""

    def __init__(self, live: LiveHal) -> None:
        self._client = patient_client(live)
        self._asked: queue.Queue[Callable[[Client], None] | None] = queue.Queue()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._work, name="people", daemon=True)
        self._thread.start()

    def ask(self, what: Callable[[Client], None]) -> None:
        self._asked.put(what)

    @property
    def idle(self) -> bool:
        return self._asked.unfinished_tasks == 0

    def check(self) -> None:
        """Raise what one of the answers was, when it was an error."""
        for error in self._errors:
            raise error

    def close(self) -> None:
        self._asked.put(None)
        self._client.close()

    def _work(self) -> None:
        while (what := self._asked.get()) is not None:
            try:
                what(self._client)
            except (UnreachableError, OverloadedError, ConflictError) as error:
                self._errors.append(error)
            finally:
                self._asked.task_done()


def helpers(root: Path, node: str) -> list[ProcessIdentity]:
    """The helpers of that node, also those whose keeper is gone.

    The first process of a step has its helper's command line until it has become the step's program: it is left out.
    """
    mark = f"{root}/nodes/{node}/journal/helper-".encode()
    commands = dict(_commands())
    found = []
    for pid, command in commands.items():
        if mark in command and b"helper.py" in command:
            with contextlib.suppress(OSError):
                identity, parent = identify(pid), _parent(pid)
                if commands.get(parent) != command:
                    found.append(identity)
    return found


def left_over(root: Path) -> dict[int, str]:
    """Processes of that HAL or of its jobs, by pid."""
    marks = (f"HAL_HOME={root}\0".encode(), f"{root}/".encode())
    found = {}
    for pid, command in _commands():
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
            if any(mark in environment or mark in command for mark in marks):
                found[pid] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def step_process(root: Path, line: Line) -> ProcessIdentity | None:
    """The process that wrote that line, if it still runs, and is no other with its pid."""
    wanted = {
        f"HAL_HOME={root}",
        f"HAL_JOB_ID={line.step.job}",
        f"HAL_TASK={line.step.task}",
        f"HAL_ATTEMPT={line.step.attempt}",
        f"HAL_NODE_RANK={line.step.rank}",
    }
    try:
        identity = identify(line.pid)
        environment = Path(f"/proc/{line.pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return None
    return identity if wanted <= set(environment) else None


def _parent(pid: int) -> int:
    """Of that process; 0: nobody's here."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _commands() -> list[tuple[int, bytes]]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                found.append((int(name), Path(f"/proc/{name}/cmdline").read_bytes()))
    return found


def _pause(seconds: float) -> None:
    select.select([], [], [], seconds)
