"""A shell on this machine while a job holds nodes: the job ends with the shell, and the shell with the job.

What holds the nodes is an interactive job whose program reads until its input ends: the stream to it is held here, so
that the job ends as soon as nobody is left who works with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

from hal.cli.jobs.caught_signals import CaughtSignals
from hal.cli.jobs.exec import task_ref
from hal.cli.jobs.interactive import ENDING_S, begin_interactive, interactive_options
from hal.cli.kit import exit_codes
from hal.cli.kit.screen import Screen
from hal.runtime.stream_link import Watched
from hal.wire.step_streams import END, Backlog, message

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.specs import JobOptions
    from hal.client.step_streams import StepStream

HOLDING: Final = ("cat",)
"""What runs on the first node: it ends when this does."""
GRACE_S: Final = 10.0
"""Between SIGHUP for a shell whose job is over, and SIGKILL."""
LAST_S: Final = 5.0
"""How long the job's program may take to read that nothing follows."""
LEFT_TO_THE_SHELL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Its terminal sends them to it, too."""
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def work_here(screen: Screen, command: list[str], options: JobOptions) -> int:
    """Hold nodes and run a shell, or a command; returns its exit code."""
    from hal.cli.jobs.results import result_line, task_exit_code
    from hal.cli.jobs.step_session import SessionEndedError
    from hal.client.rest import calls
    from hal.client.step_streams import connections_of, open_stream

    try:
        job = begin_interactive(screen, list(HOLDING), interactive_options(options, terminal=False))
    except SessionEndedError as error:
        return exit_codes.SIGNALLED + error.number
    stream = open_stream(connections_of(screen.address), task_ref(job.id)[0], kind="attach")
    nodes = screen.client.call(calls.task(job.id, 0)).nodes
    screen.note(f"job {job.id} holds {', '.join(nodes)}; it ends with this {'command' if command else 'shell'}")
    code = _run(screen, job, stream, command or [os.environ.get("SHELL") or "/bin/sh"], nodes)
    info = job.wait(ENDING_S)
    if info.state != "succeeded":
        screen.note(f"job {result_line(info)}")
        return code or task_exit_code(job.task(0))
    return code


def _run(screen: Screen, job: Job, stream: StepStream, command: list[str], nodes: tuple[str, ...]) -> int:
    """Run it until it ends, or the job does; returns its exit code."""
    own = {"HAL_JOB_ID": job.id, "HAL_TASK": "0", "HAL_NODES": ",".join(nodes), "HAL_NODE_COUNT": str(len(nodes))}
    if each := (job.info.spec or {}).get("ranks_per_node"):
        own["HAL_RANKS_PER_NODE"] = str(each)
    signals = CaughtSignals()
    with signals.catching((*LEFT_TO_THE_SHELL, *ENDING)) as wake:
        try:
            child = subprocess.Popen(command, env={**os.environ, **own})
        except OSError as error:
            from hal.core.model import NotFoundError

            stream.link.close()
            raise NotFoundError(f"'{command[0]}' cannot be run here: {error.strerror}") from error
        pidfd = os.pidfd_open(child.pid)
        watched = Watched()
        for fd in (wake, pidfd, stream.link.fileno()):
            watched.want(fd, read=True)
        held, kill_s = True, 0.0
        while child.poll() is None:
            left_ms = max(0.0, (kill_s - time.monotonic()) * 1000) if kill_s else None
            ready = watched.wait(left_ms)
            ended = any(number in ENDING for number in signals.take(wake))
            if held and stream.link.fileno() in ready and stream.link.read() == b"":
                held, ended = False, True
                watched.want(stream.link.fileno())
                screen.note(f"job {job.id} has ended, and with it this shell")
            if ended and not kill_s:
                kill_s = time.monotonic() + GRACE_S
                for number in (signal.SIGHUP, signal.SIGCONT):
                    child.send_signal(number)
            elif kill_s and time.monotonic() >= kill_s:
                child.kill()
        os.close(pidfd)
    _take_terminal_back()
    if held:
        _release(stream)
    stream.link.close()
    return child.returncode if child.returncode >= 0 else exit_codes.SIGNALLED - child.returncode


def _release(stream: StepStream) -> None:
    """Let the job's program end: nothing follows."""
    backlog, watched = Backlog(), Watched()
    backlog.put(message(END))
    deadline_s = time.monotonic() + LAST_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        backlog.flush(stream.link.write)
        watched.want(stream.link.fileno(), read=True, write=bool(backlog.bytes))
        if watched.wait(left_s * 1000).get(stream.link.fileno(), 0) & ~select.POLLOUT and stream.link.read() == b"":
            return


def _take_terminal_back() -> None:
    """A shell that was killed leaves the terminal to a process group that is gone."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, before)
