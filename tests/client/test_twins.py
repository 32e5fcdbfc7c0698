"""The sync and the asyncio client are one: generated from one source, with the same members."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hal

ROOT = Path(__file__).resolve().parents[2]
TWINS = [(hal.Client, hal.AsyncClient), (hal.Job, hal.AsyncJob)]
RENAMED = {"aclose": "close"}


def members(kind: type) -> set[str]:
    """Public attributes and methods, under the names of the sync client."""
    return {RENAMED.get(name, name) for name in dir(kind) if not name.startswith("_")} | set(
        getattr(kind, "__annotations__", {})
    )


def test_the_generated_files_are_as_generated() -> None:
    """Who changes a source runs tools/sync_client.py."""
    ran = subprocess.run([sys.executable, ROOT / "tools" / "sync_client.py", "--check"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(("sync", "other"), TWINS)
def test_twins_have_the_same_members(sync: type, other: type) -> None:
    """What one can do the other can do, too."""
    assert members(sync) == members(other)


@pytest.mark.parametrize(("sync", "other"), TWINS)
def test_twins_take_the_same_arguments(sync: type, other: type) -> None:
    """With the same defaults; `logs(follow=True)` is `follow()` for asyncio."""
    names = {name for name in members(sync) if inspect.isfunction(getattr(sync, name, None))} - {"close", "logs"}
    assert len(names) >= 12
    for name in names:
        ours, theirs = (inspect.signature(getattr(kind, name)).parameters.values() for kind in (sync, other))
        assert [(one.name, one.kind, one.default) for one in ours if one.name != "seen"] == [
            (one.name, one.kind, one.default) for one in theirs if one.name != "seen"
        ], name


def test_the_options_of_a_job_can_be_named() -> None:
    """For functions that pass them on: `def fit(**options: Unpack[hal.JobOptions])`."""
    assert {"cpus", "memory", "walltime", "array", "after"} <= set(hal.JobOptions.__annotations__)
