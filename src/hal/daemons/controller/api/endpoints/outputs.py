"""The endpoint about outputs of steps: a piece of one, or all of it as it is written."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from litestar import Response

from hal.core.model import SpecError
from hal.daemons.controller.api.endpoints.endpoint import FLAG, INT, JOB, STATE, TASKS, Endpoint, Param
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import MAX_TASK, Params, integer, tasks_named
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.outputs import MAX_PIECE_BYTES, LogRequest, Piece
from hal.daemons.controller.service.task_outputs import TasksRequest
from hal.rest.answers import streamed_answer
from hal.rest.endpoint import BYTES
from hal.rest.rights import OWNERS
from hal.wire.frames.agent_keeper import Stream

TASK_OUTPUTS: Final = "application/vnd.hal.outputs"
MAX_OFFSET: Final = 1 << 53


async def read_log(api: ControllerApi, call: Call) -> object:
    """Return the bytes of an output."""
    params = call.params
    wanted = _log_request(params, call.job)
    offset = params.integer("offset", 0, low=-(1 << 62), high=1 << 62)
    if not params.flag("follow"):
        limit = params.integer("limit", MAX_PIECE_BYTES, low=0, high=1 << 40)
        piece = await api.outputs.read(wanted, offset, limit)
        return Response(content=piece.data, media_type=BYTES, headers=_headers(piece))
    first = await api.outputs.read(wanted, offset, 0)
    headers = {name: value for name, value in _headers(first).items() if name != "HAL-Log-Ended"}
    content = api.outputs.follow(wanted, offset if offset < 0 or first.attempt is None else first.offset)
    return streamed_answer(call, content, headers=headers)


async def read_outputs(api: ControllerApi, call: Call) -> object:
    """Return the bytes of the outputs of many tasks."""
    params = call.params
    wanted = TasksRequest(
        job=call.job,
        tasks=tasks_named(params.text("tasks"), call.job, params.states()),
        after=params.integer("after", -1, low=-1, high=MAX_TASK),
        rank=params.integer("rank", 0, low=0, high=MAX_TASK),
        stream=_stream(params),
        offset=params.integer("offset", 0, low=-(1 << 62), high=1 << 62),
        limit=params.integer("limit", MAX_OFFSET, low=0, high=MAX_OFFSET),
    )
    return streamed_answer(call, await api.task_outputs.read(wanted), TASK_OUTPUTS)


def _stream(params: Params) -> Stream:
    try:
        return Stream(params.text("stream", "stdout"))
    except ValueError:
        raise SpecError(f"stream: '{params.text('stream')}' is not one", hint="write stdout or stderr") from None


def _log_request(params: Params, job: int) -> LogRequest:
    attempt = params.text("attempt")
    return LogRequest(
        job=job,
        task=params.integer("task", 0, low=0, high=MAX_TASK),
        attempt=integer(attempt, "attempt", low=1, high=MAX_TASK) if attempt else None,
        rank=params.integer("rank", 0, low=0, high=MAX_TASK),
        stream=_stream(params),
    )


def _headers(piece: Piece) -> dict[str, str]:
    headers = {
        "HAL-Log-Offset": str(piece.offset),
        "HAL-Log-Size": str(piece.size),
        "HAL-Log-Ended": "1" if piece.ended else "0",
    }
    if piece.attempt is not None:
        headers["HAL-Log-Attempt"] = str(piece.attempt)
        headers["HAL-Log-Node"] = piece.node
    if piece.path:
        headers["HAL-Log-Path"] = quote(piece.path)
    return headers


STREAM: Final = Param(
    name="stream",
    text="stdout or stderr",
    schema={"type": "string", "enum": ["stdout", "stderr"], "default": "stdout"},
)
OUTPUTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/logs",
        handler=read_log,
        right=OWNERS,
        name="readLog",
        tag="tasks",
        summary="Read the output of one step, as bytes",
        text=(
            "It is read at the step's node. With `follow` the response continues until the step has "
            "ended; before the start it waits. `HAL-Log-Offset` is where the data begins: later than requested if "
            "older output is gone. An output for which the job has named a file is empty here: `HAL-Log-Path` is "
            "that file."
        ),
        params=(
            JOB,
            Param(name="task", text="task number, from 0", schema={**INT, "default": 0}),
            Param(name="attempt", text="default: the latest", schema={"type": "integer", "minimum": 1}),
            Param(name="rank", text="index of the node in a gang, from 0", schema={**INT, "default": 0}),
            STREAM,
            Param(
                name="offset",
                text="counted from the start of all output ever written; negative: from the end",
                schema={"type": "integer", "default": 0},
            ),
            Param(name="limit", text="maximum number of bytes, up to 4 MiB", schema=INT),
            Param(name="follow", text="continue until the step has ended", schema=FLAG),
        ),
        media={BYTES: {}},
        headers={
            "HAL-Log-Offset": "where the data begins",
            "HAL-Log-Size": "bytes ever written so far",
            "HAL-Log-Ended": "1 if nothing will be added; not with `follow`",
            "HAL-Log-Attempt": "number of the attempt; missing before the first",
            "HAL-Log-Node": "the node that has the output",
            "HAL-Log-Path": "percent-encoded: the file, on that node, that the job has named for this output",
        },
        problems=("400", "404", "503", "504"),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/outputs",
        handler=read_outputs,
        right=OWNERS,
        name="readOutputs",
        tag="tasks",
        summary="Read the outputs of many tasks of a job in one answer",
        text=(
            "Of the latest attempt of each task, by task number. The answer is a sequence of pieces: a line of JSON "
            "(`task`, `attempt`, `node`, `offset`, `size`, `bytes`; `path` where the job has named a file; `error` "
            "where it cannot be read; what is 0 or empty is left out), followed by `bytes` bytes. Pieces of one output "
            "follow one another. The answer is complete when the connection was not cut: `after` continues behind the "
            "last task that was received."
        ),
        params=(
            JOB,
            TASKS,
            STATE,
            STREAM,
            Param(name="rank", text="index of the node in a gang, from 0", schema={**INT, "default": 0}),
            Param(
                name="offset",
                text="of each output; negative: from its end",
                schema={"type": "integer", "default": 0},
            ),
            Param(name="limit", text="maximum number of bytes of each output", schema=INT),
            Param(name="after", text="only of tasks behind this one", schema={"type": "integer", "default": -1}),
        ),
        media={TASK_OUTPUTS: {}},
        problems=("400", "404", "503"),
    ),
)
