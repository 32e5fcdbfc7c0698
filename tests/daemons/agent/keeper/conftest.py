"""Parts of keepers and helpers, used without a process of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

KEPT: Final = ("/sys/fs/cgroup/", "/memfd:hal-lease", "anon_inode:inotify")


@pytest.fixture(autouse=True)
def closed_afterwards(tmp_path: Path) -> Iterator[None]:
    """Such parts hold files, directories, cgroups and leases until their process ends. That of the tests goes on, at
    times to more than the 1,024 that `select` takes: what a test has left open of them is closed."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    for descriptor in set(os.listdir("/proc/self/fd")) - before:
        with suppress(FileNotFoundError):  # that of the listing itself
            what = os.readlink(f"/proc/self/fd/{descriptor}")
            if what.startswith((f"{tmp_path}/", *KEPT)):
                os.close(int(descriptor))
