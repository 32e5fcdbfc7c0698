"""Keep a process running that runs other people's code: a child does the work, and is replaced when it dies.

A fork of a process that has loaded everything takes milliseconds, a new one half a second. Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from hal.runtime.last_words import Death, LastWords

PR_SET_PDEATHSIG: Final = 1
MAX_DEATHS: Final = 100
"""Children in a row that lived less than `SOUND_S`."""
SOUND_S: Final = 10.0
FREE_DEATHS: Final = 3
"""Of these, which are replaced at once."""
PAUSE_S: Final = 0.05
"""Before a child that lived so briefly is replaced; it doubles up to `MAX_PAUSE_S`."""
MAX_PAUSE_S: Final = 2.0
EXIT_GIVEN_UP: Final = 70
EXIT_RAISED: Final = 71
"""Of a child that raised."""


def keep_running(
    work: Callable[[LastWords, Death | None], int], *, final: tuple[int, ...], told: int, renewed: tuple[int, ...]
) -> int:
    """Run `work` in a child, and in another one after it died; returns the exit code of the last one.

    SIGTERM is passed on to the child, after which there is no other one.

    Args:
        work: is given where to leave its last words, and how the child before it ended.
        final: what `work` may return after which no other child is started; whatever else ends a child with such an
            exit code, as other people's code may, does not count.
        told: returned when the child has ended otherwise after a SIGTERM.
        renewed: what `work` returns to be begun again in a new process, without having died.
    """
    deaths = pid = 0
    leaving = False
    words, death = LastWords(), None

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal leaving
        leaving = True
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    while deaths < MAX_DEATHS:
        if leaving:
            return told
        began = time.monotonic()
        told_by, tells = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        pid = os.fork()
        if not pid:
            os.close(told_by)
            _run_child(partial(work, words, death), tells)
        os.close(tells)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        pid = 0
        returned = _returned(told_by)
        if returned and code in final:
            return code
        if returned and code in renewed:
            words.take(code)
            death = None
            continue
        death = words.take(code)
        deaths = 0 if time.monotonic() - began >= SOUND_S else deaths + 1
        if deaths > FREE_DEATHS:
            time.sleep(min(PAUSE_S * 2 ** min(deaths - FREE_DEATHS, 10), MAX_PAUSE_S))
    return EXIT_GIVEN_UP


def when_told_to_leave(do: Callable[[], None]) -> None:
    """In the child: call this on SIGTERM, which ends it otherwise, and processes that it forks."""

    masks: list[set[int]] = []

    def told(_number: int, _frame: object) -> None:
        do()

    def hold() -> None:
        """What a child is sent before it has forgotten this would be lost."""
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})))

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    def forget() -> None:
        if signal.getsignal(signal.SIGTERM) is told:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        release()

    signal.signal(signal.SIGTERM, told)
    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=forget)


def end_child(code: int) -> NoReturn:
    """In the child: end it as if its work had returned this, from whatever thread."""
    _say_returned(_tells)
    os._exit(code)


def _returned(told_by: int) -> bool:
    """Whether a child that has ended said that its work had."""
    try:
        return bool(os.read(told_by, 1))
    except BlockingIOError:
        return False  # a child of its own still holds the other end
    finally:
        os.close(told_by)


def _say_returned(tells: int) -> None:
    with contextlib.suppress(OSError):  # code that closes everything may have closed it
        os.write(tells, b"\1")


_tells = -1
"""Of the child: where it says that its work has returned."""


def _run_child(work: Callable[[], int], tells: int) -> NoReturn:
    global _tells
    _tells = tells
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    code = EXIT_RAISED
    try:
        code = work()
        _say_returned(tells)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
