"""The endpoints of REST /v1 as a table: what each takes, what it gives, how it can fail.

Pure data; a test checks that it names exactly the routes that are served.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import Event
from hal.daemons.controller.changing import Outcomes, Submitted
from hal.daemons.controller.controllers_view import ControllersList
from hal.daemons.controller.reading import AuthorityView, Health
from hal.daemons.controller.views import JobView, NodeView, QueueView, TaskView, WhyView


class JobsPage(Struct, frozen=True, kw_only=True):
    """Some jobs, newest first; `cursor` asks for those that follow, null at the end."""

    jobs: list[JobView]
    cursor: str | None


class TasksPage(Struct, frozen=True, kw_only=True):
    """Some tasks in ascending order."""

    tasks: list[TaskView]
    cursor: str | None


class EventsPage(Struct, frozen=True, kw_only=True):
    """Some events, oldest first."""

    events: list[Event]
    cursor: str | None


class NodesList(Struct, frozen=True, kw_only=True):
    """All nodes by name."""

    nodes: list[NodeView]


class QueuesList(Struct, frozen=True, kw_only=True):
    """All queues by name."""

    queues: list[QueueView]


class VersionInfo(Struct, frozen=True, kw_only=True):
    """What speaks here."""

    version: str
    api_version: int
    wire_versions: list[int]


ANSWERS: tuple[type[Struct], ...] = (
    Submitted,
    Outcomes,
    JobsPage,
    TasksPage,
    EventsPage,
    NodesList,
    QueuesList,
    VersionInfo,
    AuthorityView,
    ControllersList,
    Health,
    WhyView,
)
"""Every type of answer; their parts follow from them."""


class Param(Struct, frozen=True, kw_only=True):
    """A parameter of path, query or header."""

    name: str
    text: str
    schema: dict[str, Any]
    where: str = "query"
    example: Any = None


class Endpoint(Struct, frozen=True, kw_only=True):
    """One operation."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    text: str = ""
    params: tuple[Param, ...] = ()
    body: dict[str, Any] | None = None
    body_examples: dict[str, Any] = {}
    gives: str = ""
    """Name of the schema of a JSON answer; empty for other media."""
    media: dict[str, dict[str, Any]] = {}
    headers: dict[str, str] = {}
    status: int = 200
    problems: tuple[str, ...] = ()


def ref(name: str) -> dict[str, Any]:
    """A reference to a schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}


_INT = {"type": "integer", "minimum": 0}
FLAG = {"type": "string", "enum": ["0", "1", "true", "false", "yes", "no", ""]}
_STATES = (
    "comma list of pending, held, allocated, preparing, running, suspended, finalising, succeeded, failed, timed-out, "
    "cancelled, or active, live, ended"
)
_JOB = Param(
    name="job", where="path", text="job id", schema={"type": "string", "pattern": "^[0-9]{1,18}$"}, example="42"
)
LIMIT = Param(
    name="limit", text="entries of a page", schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
)
CURSOR = Param(
    name="cursor",
    text="what the page before gave as `cursor`",
    schema={"type": "string", "pattern": "^[0-9]{0,19}$"},
)
_STATE = Param(name="state", text=_STATES, schema={"type": "string"}, example="running,pending")
_KEY = Param(
    name="Idempotency-Key",
    where="header",
    text="the same key with the same request is done once",
    schema={"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]([ -~]*[!-~])?$"},
)
_FILTERS = (
    _STATE,
    Param(name="user", text="whose", schema={"type": "string"}),
    Param(name="queue", text="in which queue", schema={"type": "string"}),
    Param(name="name", text="with exactly this name", schema={"type": "string"}),
    Param(name="account", text="for which account", schema={"type": "string"}),
    Param(
        name="label",
        text="comma list of `key` and `key=value`; all must match",
        schema={"type": "string"},
        example="team=blue",
    ),
)
_TIMEOUT = Param(
    name="timeout_s", text="at most so long", schema={"type": "number", "minimum": 0, "maximum": 600, "default": 30}
)
_NODE_ACTIONS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("cordon", "Let nothing new start on nodes", "What runs there goes on.", {"reason": "new disk"}),
    ("uncordon", "Let work start again on closed nodes", "Failing checks keep a node closed.", {}),
    ("drain", "Cordon nodes until they are empty, and keep them so", "What runs there ends by itself.", {}),
    ("remove", "Forget nodes that are gone, or cordoned, and hold nothing", "A node that dials again is new.", {}),
)
_CONTROL_TEXT = {
    "cancel": "What waits is cancelled at once; what runs gets SIGTERM, then SIGKILL, and is then cancelled.",
    "hold": "Waiting tasks do not start until they are released; running ones go on.",
    "release": "Held tasks wait for resources again, at their old place.",
    "requeue": (
        "Run again: what runs is stopped and waits again, what ended waits again, a back-off is cut short. Of a whole "
        "job the tasks that did not succeed, or all when every one did."
    ),
}


def _get(path: str, name: str, tag: str, summary: str, **more: Any) -> Endpoint:
    return Endpoint(method="get", path=path, name=name, tag=tag, summary=summary, **more)


def _patch(path: str, name: str, tag: str, summary: str, **more: Any) -> Endpoint:
    return Endpoint(method="patch", path=path, name=name, tag=tag, summary=summary, **more)


def _post(path: str, name: str, tag: str, summary: str, **more: Any) -> Endpoint:
    return Endpoint(method="post", path=path, name=name, tag=tag, summary=summary, **more)


def endpoints() -> list[Endpoint]:
    """All of them."""
    return [*_jobs(), *_controls(), *_tasks(), *_others()]


def _jobs() -> list[Endpoint]:
    one = {"command": ["python3", "train.py"], "request": {"cpu": 4, "memory": "8GiB"}, "walltime": "2h"}
    array = {"name": "sweep", "array": "0-999", "script": "#!/bin/sh\nrun --case $HAL_ARRAY_INDEX\n"}
    fan_in = {"name": "report", "command": ["report"], "dependencies": ["afterok:sweep"]}
    return [
        _post(
            "/v1/jobs",
            "submit",
            "jobs",
            "Submit one job or many; all are accepted, or none",
            text="Answers when it is durable. Jobs of one submission may name each other as dependencies.",
            params=(
                Param(name="dry_run", text="check only; nothing is kept", schema=FLAG),
                _KEY,
            ),
            body={"anyOf": [ref("JobSpec"), ref("JobSpecs")]},
            body_examples={"one job": one, "an array and what follows it": {"jobs": [array, fan_in]}},
            gives="Submitted",
            status=201,
            problems=("400", "409", "413", "503"),
        ),
        _get(
            "/v1/jobs",
            "listJobs",
            "jobs",
            "List jobs, newest first",
            params=(*_FILTERS, LIMIT, CURSOR),
            gives="JobsPage",
            problems=("400",),
        ),
        _get(
            "/v1/jobs/{job}",
            "getJob",
            "jobs",
            "One job, with its spec",
            params=(_JOB,),
            gives="JobView",
            problems=("400", "404"),
        ),
        _patch(
            "/v1/jobs/{job}",
            "updateJob",
            "jobs",
            "Change what may be changed of a job that has not ended",
            text="A new walltime holds for running tasks too, counted from their start.",
            params=(_JOB,),
            body=ref("JobPatch"),
            body_examples={"more time": {"walltime": "4h"}, "hold": {"hold": True}},
            gives="JobView",
            problems=("400", "404", "409", "413", "503"),
        ),
        _get(
            "/v1/jobs/{job}/wait",
            "waitForJob",
            "jobs",
            "Wait for the job's end",
            text="Answers as soon as it has ended, or with the job as it is after `timeout_s`: look at `state`.",
            params=(_JOB, _TIMEOUT),
            gives="JobView",
            problems=("400", "404", "503"),
        ),
        _get(
            "/v1/jobs/{job}/why",
            "whyJob",
            "jobs",
            "Why the job does not start, when it is forecast to, and what would help",
            params=(_JOB,),
            gives="WhyView",
            problems=("400", "404"),
        ),
    ]


def _controls() -> list[Endpoint]:
    return [
        _post(
            f"/v1/jobs/{action}",
            f"{action}Jobs",
            "jobs",
            f"{action.capitalize()} jobs and tasks, by id or filter",
            text=f"{text} One outcome for each; a refused one does not keep the others back.",
            params=(_KEY,),
            body=ref("ControlBody"),
            body_examples={
                "by id": {"ids": ["42", "43.7"]},
                "by filter": {"filter": {"user": "alice", "state": "pending"}},
            },
            gives="Outcomes",
            problems=("400", "409", "413", "503"),
        )
        for action, text in _CONTROL_TEXT.items()
    ]


def _tasks() -> list[Endpoint]:
    task = Param(name="task", text="task number, from 0", schema={**_INT, "default": 0})
    return [
        _get(
            "/v1/jobs/{job}/tasks",
            "listTasks",
            "tasks",
            "The job's tasks, each with its latest attempt",
            params=(_JOB, _STATE, LIMIT, CURSOR),
            gives="TasksPage",
            problems=("400", "404"),
        ),
        _get(
            "/v1/jobs/{job}/tasks/{task}",
            "getTask",
            "tasks",
            "One task with all its attempts",
            params=(_JOB, Param(name="task", where="path", text="task number, from 0", schema=_INT, example=0)),
            gives="TaskView",
            problems=("400", "404"),
        ),
        _get(
            "/v1/jobs/{job}/logs",
            "readLog",
            "tasks",
            "Output of one step, as bytes",
            text=(
                "Read at its node. With `follow` the answer goes on until the step has ended; before it has started it "
                "waits. `HAL-Log-Offset` says where the data begins: later than asked when older output is gone."
            ),
            params=(
                _JOB,
                task,
                Param(name="attempt", text="the latest when left out", schema={"type": "integer", "minimum": 1}),
                Param(name="rank", text="which node of a gang", schema={**_INT, "default": 0}),
                Param(
                    name="stream",
                    text="which output",
                    schema={"type": "string", "enum": ["stdout", "stderr"], "default": "stdout"},
                ),
                Param(
                    name="offset",
                    text="from the start of all that was ever written; negative counts from the end",
                    schema={"type": "integer", "default": 0},
                ),
                Param(name="limit", text="most bytes; at most 4 MiB are given", schema=_INT),
                Param(name="follow", text="go on until the end", schema=FLAG),
            ),
            media={"application/octet-stream": {}},
            headers={
                "HAL-Log-Offset": "where the data begins",
                "HAL-Log-Size": "bytes ever written so far",
                "HAL-Log-Ended": "1 when nothing will be added; not with `follow`",
                "HAL-Log-Attempt": "which attempt it is of; missing before the first",
                "HAL-Log-Node": "where it lies",
            },
            problems=("400", "404", "503", "504"),
        ),
    ]


def _others() -> list[Endpoint]:
    name = Param(name="name", where="path", text="node name", schema={"type": "string"}, example="n1")
    return [
        _get("/v1/nodes", "listNodes", "nodes", "All nodes", gives="NodesList"),
        _get("/v1/nodes/{name}", "getNode", "nodes", "One node", params=(name,), gives="NodeView", problems=("404",)),
        _post(
            "/v1/nodes/{name}/fence",
            "fenceNode",
            "nodes",
            "Declare that an unreachable node is gone for good",
            text="Its attempts end as lost and their tasks wait again. Only say so when nothing can be running there.",
            params=(name,),
            gives="NodeView",
            problems=("404", "409", "503"),
        ),
        _get(
            "/v1/nodes/{name}/wait",
            "waitForNode",
            "nodes",
            "Wait until a node that is drained holds nothing",
            text="Answers as soon as it is empty or is not being drained, or with the node as it is after `timeout_s`.",
            params=(name, _TIMEOUT),
            gives="NodeView",
            problems=("400", "404", "503"),
        ),
        *(
            _post(
                f"/v1/nodes/{action}",
                f"{action}Nodes",
                "nodes",
                summary,
                text=f"{text} One outcome for each; a refused one does not keep the others back.",
                body=ref("NodesBody"),
                body_examples={"two nodes": {"nodes": ["n1", "n2"], **more}},
                gives="Outcomes",
                problems=("400", "413", "503"),
            )
            for action, summary, text, more in _NODE_ACTIONS
        ),
        _get("/v1/queues", "listQueues", "queues", "All queues", gives="QueuesList"),
        _get(
            "/v1/events",
            "listEvents",
            "events",
            "The feed of events, as a page or as server-sent events",
            text=(
                "With `Accept: text/event-stream` it goes on for ever: `id` is the sequence number, `event` the kind, "
                "`data` the event. Resume with `Last-Event-ID`. A reader that is too slow gets `event: lagged` and is "
                "disconnected."
            ),
            params=(
                Param(name="after", text="only later than this sequence number", schema=_INT),
                Param(name="job", text="only about this job", schema={"type": "string"}),
                LIMIT,
                Param(name="Last-Event-ID", where="header", text="resume a stream after it", schema={"type": "string"}),
            ),
            gives="EventsPage",
            media={"text/event-stream": {"type": "string"}},
            problems=("400", "503"),
        ),
        _get("/v1/health", "health", "service", "How the controller is", gives="Health"),
        _get(
            "/v1/authority",
            "authority",
            "service",
            "The certificate of this HAL's own authority",
            text="Answered without a token: whoever has its fingerprint believes it, and nobody else should.",
            gives="AuthorityView",
            problems=("404",),
        ),
        _get(
            "/v1/controllers",
            "listControllers",
            "service",
            "The controllers that share the database, and what that warns of",
            gives="ControllersList",
            problems=("503",),
        ),
        _get("/v1/version", "version", "service", "What speaks here", gives="VersionInfo"),
        _get(
            "/v1/openapi.json",
            "openapi",
            "service",
            "This document",
            media={"application/json": {"type": "object"}},
        ),
    ]
