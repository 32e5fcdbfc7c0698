"""Throw-away Unix users of this machine, for tests that run as root: made once per test process, deleted at its end."""

from __future__ import annotations

import fcntl
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

FIRST_UID: Final = 61_100
LOCK: Final = "/run/lock/hal-test-users"
SHELL: Final = "/bin/sh"


class UnixUser(NamedTuple):
    """One of them, with a group of its own, a group that it shares with nobody else, and a private home."""

    name: str
    uid: int
    gid: int
    group: int
    """A supplementary group."""
    home: Path


_SETS = itertools.count(1)
"""Tests of one process may have several sets at a time."""


@contextmanager
def unix_users(count: int) -> Iterator[list[UnixUser]]:
    """Make so many users, with homes in a directory through which everybody may pass."""
    home = Path(tempfile.mkdtemp(prefix="hal-t-", dir="/var/tmp"))
    stem = f"hal-t{os.getpid()}-{next(_SETS)}"
    made: list[UnixUser] = []
    groups: list[str] = []
    home.chmod(0o711)
    try:
        for number in range(count):
            name, extra = f"{stem}-{number}", f"{stem}x{number}"
            place = home / name
            with _locked():
                _run("groupadd", extra)
                groups.append(extra)
                _run(
                    "useradd",
                    "-M",
                    "-U",
                    "-d",
                    str(place),
                    "-s",
                    SHELL,
                    "-K",
                    f"UID_MIN={FIRST_UID}",
                    "-K",
                    "UID_MAX=64000",
                    "-G",
                    extra,
                    name,
                )
            entry = pwd.getpwnam(name)
            place.mkdir(mode=0o700)
            os.chown(place, entry.pw_uid, entry.pw_gid)
            extra_gid = next(gid for gid in os.getgrouplist(name, entry.pw_gid) if gid != entry.pw_gid)
            made.append(UnixUser(name, entry.pw_uid, entry.pw_gid, extra_gid, place))
        yield made
    finally:
        with _locked():
            for user in made:
                _run("userdel", "-f", user.name)  # a helper of theirs may not have ended yet
            for group in groups:
                _run("groupdel", group)
        shutil.rmtree(home)


@contextmanager
def _locked() -> Iterator[None]:
    """useradd refuses to wait for another one."""
    fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make users")
