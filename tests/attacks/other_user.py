"""Acting as another user of the machine: a forked child that gives up root and then does what it is asked."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

ALICE: Final = 61_001
BOB: Final = 61_002
"""User ids without an account or a name: nothing on the machine belongs to them."""

T = TypeVar("T")


def as_user(uid: int, act: Callable[[], T]) -> T:
    """What `act` returns (a picklable value) when a process of that user calls it.

    The child is forked, so modules that are imported here can be used there although that user may not read them.

    Raises:
        AssertionError: `act` raised; carries its traceback.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
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
    os.waitpid(pid, 0)
    fine, value = pickle.loads(data)
    assert fine, value
    return value
