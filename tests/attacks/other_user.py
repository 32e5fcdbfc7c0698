"""Acting as another user of the machine: a forked child that gives up root and then does what it is asked."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - loaded with the first name that is looked up, which another user may not be able to
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

ALICE: Final = 61_001
BOB: Final = 61_002
"""User ids without an account or a name: nothing on the machine belongs to them."""

LONGEST_S: Final = 120
"""How long an act may take; then the kernel ends the child."""

T = TypeVar("T")


def as_user(uid: int, act: Callable[[], T]) -> T:
    """What `act` returns (a picklable value) when a process of that user calls it.

    The child is forked, so modules that are imported here can be used there although that user may not read them.

    Raises:
        AssertionError: `act` raised, and its traceback is in the message; or it took longer than `LONGEST_S`.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LONGEST_S)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            result: tuple[bool, object] = (True, act())
        except BaseException:
            result = (False, traceback.format_exc())
        with os.fdopen(theirs, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert data, f"as user {uid}: ended by signal {os.WTERMSIG(status)}, after {LONGEST_S} s at most"
    fine, value = pickle.loads(data)
    assert fine, value
    return value
