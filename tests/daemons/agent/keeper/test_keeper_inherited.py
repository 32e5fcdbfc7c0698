"""What a keeper of root's has from whoever started it, and steps of users must not have: its keys."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_process.account import KEYCTL
from hal.wire.frames.agent_keeper import StepTemplate
from tests.daemons.agent.keeper.driving import Keeper
from tests.unix_users import UnixUser, needs_root, unix_users

pytestmark = needs_root
_jobs = itertools.count(1)
NUMBER = KEYCTL.get(os.uname().machine, 250)
LIBC = "import ctypes, os, sys; call = ctypes.CDLL(None, use_errno=True).syscall; call.restype = ctypes.c_long;"
STARTER = f"""{LIBC}
call({NUMBER}, 1, None)
call({NUMBER - 2}, b"user", b"of-root", b"root's", 6, -3)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A session keyring with a key, as a login or a service manager gives one."""
LOOK = f"""{LIBC}
print([name for name in sys.argv[2:] if call({NUMBER}, 10, -3, b"user", name.encode(), 0) > 0])
call({NUMBER - 2}, b"user", sys.argv[1].encode(), b"secret", 6, -3)
"""
"""Which of these keys are found; then adds one."""


@pytest.fixture(scope="module")
def users() -> Iterator[list[UnixUser]]:
    with unix_users(2) as made:
        yield made


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory, users: list[UnixUser]) -> Iterator[Keeper]:
    one = Keeper(tmp_path_factory.mktemp("home"), under=[sys.executable, "-c", STARTER])
    try:
        one.start({"HAL_RUN_AS_OWNER": "0"})
        yield one
    finally:
        one.__exit__(None, None, None)


def said(keeper: Keeper, user: str, *command: str) -> str:
    """What a step of that user writes."""
    step = StepId(next(_jobs), 0, 1, 0)
    keeper.run(StepTemplate(command=command, user=user, env={"PATH": "/usr/bin:/bin"}), step)
    return keeper.log(step).data.decode()


def test_safety_steps_find_no_keys_of_root_or_of_another_user(keeper: Keeper, users: list[UnixUser]) -> None:
    """A step of the same user finds what the one before has added, as programs of one login do."""
    alice, bob = (user.name for user in users)
    look = ("/usr/bin/python3", "-c", LOOK)
    assert said(keeper, alice, *look, "of-alice", "of-root", "of-alice") == "[]\n"
    assert said(keeper, bob, *look, "of-bob", "of-root", "of-alice") == "[]\n"
    assert said(keeper, alice, *look, "of-alice", "of-root", "of-alice", "of-bob") == "['of-alice']\n"
