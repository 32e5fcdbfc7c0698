"""Where attempts run or ran: the history is asked, and of what it lacks the controller, about a few jobs at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hal.core.model import NotFoundError
from hal.daemons.collector.attempt_nodes import JOBS_A_TURN, TASKS_A_JOB, AttemptNodes
from hal.planes.observability.attribution import Key, Placed


class Rows:
    """A history that knows one attempt, and a controller of many jobs of two tasks, all of erin; job 3 was removed."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def placed(self, keys: Sequence[Key]) -> dict[Key, tuple[str, tuple[str, ...]]]:
        return {key: ("alice", ("n1", "n2")) for key in keys if key == (1, 0, 1)}

    async def ask(self, _method: str, path: str, query: Mapping[str, str] = {}) -> bytes:
        self.paths.append(path)
        if path.startswith("/v1/jobs/3"):
            raise NotFoundError("there is no job 3")
        if not path.endswith("/tasks"):
            return json.dumps({"user": "erin", "name": "x"}).encode()
        tasks = [int(task) for task in query["tasks"].split(",")]
        assert int(query["limit"]) >= len(tasks)
        rows = [{"task": task, "attempt": 2, "nodes": ["n7"], "state": "running"} for task in tasks if task < 2]
        return json.dumps({"tasks": rows}).encode()


def look_up(rows: Rows, *keys: Key) -> tuple[dict[Key, Placed], set[Key]]:
    answer = asyncio.run(AttemptNodes(cast(Any, rows), cast(Any, rows)).look_up(keys))
    return dict(answer.placed), set(answer.asked)


def test_the_controller_is_asked_about_what_the_history_does_not_know() -> None:
    """Only the attempt that runs now is known there; of a job that is gone none is."""
    rows = Rows()
    keys = (Key(1, 0, 1), Key(2, 0, 2), Key(2, 1, 1), Key(3, 0, 1))
    placed, asked = look_up(rows, *keys)
    assert placed == {keys[0]: Placed("alice", ("n1", "n2")), keys[1]: Placed("erin", ("n7",))}
    assert asked == set(keys)
    assert not any(path.startswith("/v1/jobs/1") for path in rows.paths)


def test_safety_a_node_makes_the_collector_ask_about_few_jobs_and_tasks_at_once() -> None:
    """What is not asked about is not said to be unknown."""
    jobs = [Key(10 + at, 0, 2) for at in range(JOBS_A_TURN + 5)]
    placed, asked = look_up(Rows(), *jobs)
    assert set(placed) == asked == set(jobs[:JOBS_A_TURN])
    tasks = [Key(10, at, 2) for at in range(TASKS_A_JOB + 5)]
    placed, asked = look_up(Rows(), *tasks)
    assert (set(placed), asked) == (set(tasks[:2]), set(tasks[:TASKS_A_JOB]))
