"""`hal events`: what a line says of an event, and of one job only what concerns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hal.cli.jobs.event_text import told
from hal.client.rest.views import EventInfo
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json

Hal = Callable[..., Ran]


def event(kind: str, **payload: Any) -> EventInfo:
    return EventInfo(sequence=1, at_ms=0, kind=kind, jobs=("42", "43"), payload=payload)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (event("attempts-allocated", attempts=[{"id": "42.0.1", "nodes": ["n1", "n2"]}]), "42.0.1 on n1,n2"),
        (event("attempts-started", attempts=["42.0.1", "43.0.1", "42.1.1"]), "42.0.1, 42.1.1"),
        (
            event("attempts-ended", attempts=[
                {"id": "42.0.1", "state": "failed", "exit_code": 3, "cause": "exited", "message": ""},
                {"id": "43.0.1", "state": "failed", "exit_code": 1, "cause": "exited", "message": "not of this job"},
            ]),
            "42.0.1 failed, exit code 3",
        ),
        (
            event("attempts-ended", attempts=[
                {"id": "42.0.1", "state": "out-of-memory", "exit_code": None, "cause": "oom", "message": "over 6MiB"},
            ]),
            "42.0.1 out-of-memory: over 6MiB",
        ),
        (event("jobs-ended", ended=[["42", "failed", 3], ["43", "succeeded", 0]]), "failed, exit code 3"),
        (event("jobs-cancelled", tasks=1, reason="cancelled by ada"), "1 task; reason cancelled by ada"),
        (event("jobs-changed", fields={"priority": 5}), "priority 5"),
        (event("attempts-preempted", attempts=[{"id": "42.0.1", "mode": "requeue", "for": "7"}]),
         "42.0.1 requeue, for 7"),
        (event("attempts-started", attempts=[f"42.{n}.1" for n in range(7)], truncated=True),
         "42.0.1, 42.1.1, 42.2.1, 42.3.1, 42.4.1 and 2 more; (not all is told here)"),
    ],
)  # fmt: skip
def test_what_an_event_says_of_one_job(one: EventInfo, text: str) -> None:
    """Nodes, exit codes and reasons; nothing of job 43."""
    assert told(one, "42") == text


def test_the_story_of_a_job_is_whole(serve: Serve, hal: Hal) -> None:
    """Its lines do not repeat the job, and say on which node it failed and how."""
    attempt = {"id": "42.0.1", "state": "failed", "exit_code": 3, "cause": "exited", "message": ""}
    events = [
        {"sequence": 1, "at_ms": 1, "kind": "attempts-allocated", "cause": "engine", "jobs": [42],
         "payload": {"attempts": [{"id": "42.0.1", "nodes": ["n1"]}]}},
        {"sequence": 2, "at_ms": 2, "kind": "attempts-ended", "cause": "node:n1", "jobs": [42],
         "payload": {"attempts": [attempt]}},
    ]  # fmt: skip
    serve(lambda asked: as_json({"events": events if asked.query.get("after", "0") == "0" else [], "cursor": None}))
    first, second = hal("events", "--job", "42").out.splitlines()
    assert first.endswith("attempts-allocated  by engine  42.0.1 on n1")
    assert second.endswith("attempts-ended  by node:n1  42.0.1 failed, exit code 3")
