"""What tasks of one process share and may change: put back after them, so that no task finds what another one left.

The working directory, the umask, the recursion limit, and in the main thread the handlers of signals, which of them are
blocked, and the timer.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # those of `signal` make enums, which costs more than all else here
import os
import signal
import sys
import threading
from typing import Any, Final, NamedTuple

SIGNALS: Final = tuple(map(int, (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGFPE, signal.SIGSEGV, signal.SIGABRT,
)))  # fmt: skip
"""Whose handlers are put back."""


class _State(NamedTuple):
    """As it was."""

    directory: str
    umask: int
    recursion: int
    handlers: tuple[Any, ...]
    blocked: frozenset[int]


_kept: _State | None = None
_tasks = 0
"""That run or wait."""
_counting = threading.Lock()


def keep_surroundings() -> None:
    """What there is now is what tasks shall find. In the main thread."""
    global _kept
    _kept = _now()


def begin_tasks() -> None:
    """This thread runs some."""
    global _tasks
    with _counting:
        _tasks += 1


def end_tasks() -> None:
    """This thread runs no more of them; what they changed is put back, unless another thread is still inside of one."""
    global _tasks
    with _counting:
        _tasks -= 1
        if not _tasks and _kept is not None:
            _put_back(_kept)


def _now() -> _State:
    umask = os.umask(0o077)
    os.umask(umask)
    return _State(
        os.getcwd(),
        umask,
        sys.getrecursionlimit(),
        tuple(map(_signal.getsignal, SIGNALS)),
        frozenset(_signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    )


def _put_back(kept: _State) -> None:
    if sys.getrecursionlimit() != kept.recursion:
        sys.setrecursionlimit(kept.recursion)
    os.umask(kept.umask)
    try:
        moved = os.getcwd() != kept.directory
    except OSError:
        moved = True
    if moved:
        try:
            os.chdir(kept.directory)
        except OSError:
            os.chdir("/")  # it is gone: no place of the task's that was here before
    if threading.current_thread() is not threading.main_thread():
        return
    _signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in zip(SIGNALS, kept.handlers, strict=True):
        if handler is not None and _signal.getsignal(number) != handler:
            signal.signal(number, handler)
    if _signal.pthread_sigmask(signal.SIG_BLOCK, ()) != kept.blocked:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept.blocked)
