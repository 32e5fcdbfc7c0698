"""A broker with hundreds of slots, and tasks of very different lengths, as benchmarks run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
GROWTH_MIB = 32


def test_each_of_a_million_tasks_is_answered_once_and_memory_stays() -> None:
    """The benchmark ends with an error if a task is answered twice, or with what is not its result."""
    argv = [sys.executable, str(BENCHMARKS / "session_slots.py"), "--tasks", "1000000", "--slots", "200"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    found = {line["bench"]: line["value"] for line in map(json.loads, ended.stdout.splitlines())}
    assert found.keys() == {"session-slots-rate", "session-slots-broker-cpu", "session-slots-growth"}
    assert found["session-slots-growth"] < GROWTH_MIB
