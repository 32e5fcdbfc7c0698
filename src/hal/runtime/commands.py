"""Run commands as tasks of sessions: started without a copy of the worker, output kept up to a bound.

A worker may have gigabytes loaded; `posix_spawn` shares its memory until the command begins, where a fork would copy
the tables of all of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_OUTPUT_BYTES: Final = 16 << 20
"""Of each stream of a command; the rest is dropped."""
READ_BYTES: Final = 1 << 16
_DEFAULTED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them, and commands should not."""


class CommandEnd(NamedTuple):
    """What became of a command."""

    exit_code: int
    """That of a signal is negative."""
    output: bytes
    errors: bytes
    """Standard error."""


_running: set[int] = set()
"""Commands of this process."""


def run_command(argv: Sequence[str | bytes], most: int = MAX_OUTPUT_BYTES) -> CommandEnd:
    """Run a command without input and wait for it; its process group and environment are those of this process.

    Args:
        argv: the command, which is looked for in PATH, and its arguments.
        most: bytes of each stream that are kept.
    Raises:
        OSError: it cannot be started.
        ValueError: a word contains a null byte, or there is none.
    """
    if not argv:
        raise ValueError("a command has at least one word")
    with contextlib.ExitStack() as opened:
        ours, theirs = [], []
        for _ in range(2):
            reads, writes = os.pipe()
            opened.callback(os.close, reads)
            ours.append(reads)
            theirs.append(writes)
        try:
            pid = os.posix_spawnp(
                argv[0],
                list(argv),
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, theirs[0], 1),
                    (os.POSIX_SPAWN_DUP2, theirs[1], 2),
                ],
                setsigdef=_DEFAULTED,
            )
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        _running.add(pid)
        try:
            output, errors = _read(ours, most)
        finally:
            status = os.waitpid(pid, 0)[1]
            _running.discard(pid)
    return CommandEnd(os.waitstatus_to_exitcode(status), output, errors)


def end_commands() -> None:
    """Kill the commands that run: this process ends without waiting for them."""
    for pid in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _read(descriptors: list[int], most: int) -> list[bytes]:
    """Read all to their end; returns what they begin with."""
    kept = {descriptor: bytearray() for descriptor in descriptors}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left:
        for descriptor, _ in poll.poll():
            data = os.read(descriptor, READ_BYTES)
            if data:
                kept[descriptor] += data[: most - len(kept[descriptor])]
            else:
                poll.unregister(descriptor)
                left -= 1
    return [bytes(kept[descriptor]) for descriptor in descriptors]
