"""The endpoint about streams to running steps."""

from __future__ import annotations

from typing import Final

from hal.core.model import one_line
from hal.daemons.controller.api.endpoints.endpoint import JOB, Endpoint, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_entering
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.streams import StreamBody, StreamView, Target
from hal.rest.rights import OWNERS
from hal.wire.frames.controller_agent import StreamKind

MAX_TARGET_CHARS: Final = 200
"""What the audit log keeps of a command."""


async def open_stream(api: ControllerApi, call: Call) -> object:
    """Let the caller reach a running step."""
    asked: StreamBody = call.body
    target = await api.streams.find(call.job, asked.task, asked.rank, asked.node)
    call.visit.targets.append(_what(target, asked))
    check_entering(call.visit.identity, *api.jobs.serving(), target.user)
    return await api.streams.open(target, asked, call.visit.identity.user)


def _what(target: Target, asked: StreamBody) -> str:
    """What the audit log says of it: where, and what."""
    argv = " ".join(asked.argv)
    what = {
        StreamKind.EXEC: argv,
        StreamKind.FORWARD: f"port {asked.port}",
        StreamKind.LAUNCH: f"{asked.ranks} of {asked.size}: {argv}",
    }.get(asked.kind, "")
    return one_line(f"{asked.kind} in {target.step} on {target.node}: {what}".removesuffix(": "), MAX_TARGET_CHARS)


STREAMS: Final = (
    Endpoint(
        method="POST",
        path="/v1/jobs/{job}/streams",
        handler=open_stream,
        right=OWNERS,
        name="openStream",
        tag="tasks",
        summary="Open a stream to a running step: a command inside it, or a port that it serves",
        text=(
            "The answer says where to connect within 15 seconds, and the ticket to show there. What runs inside the "
            "step has its user, limits, namespaces and variables, and ends with the connection and with the step. The "
            "messages on the connection are described in spec/frames.md. Only the job's owner and admins may do this; "
            "the audit log says who did, where and what."
        ),
        params=(JOB,),
        body=body_of(
            StreamBody,
            {
                "a shell on a terminal": {
                    "kind": "exec",
                    "argv": ["bash"],
                    "terminal": True,
                    "rows": 24,
                    "columns": 80,
                    "here": True,
                },
                "four of eight ranks": {
                    "kind": "launch",
                    "rank": 1,
                    "argv": ["./solver"],
                    "ranks": 4,
                    "first_rank": 4,
                    "size": 8,
                    "here": True,
                },
                "a port of task 3": {"kind": "forward", "task": 3, "port": 8888, "here": True},
            },
        ),
        result=StreamView,
        problems=("400", "403", "404", "409", "503", "504"),
        for_job_tokens=True,
    ),
)
