"""The endpoint about outputs of steps: a piece of one, or all of it as it is written."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from litestar import Response

from hal.core.model import SpecError
from hal.daemons.controller.api.endpoints.endpoint import FLAG, INT, JOB, Endpoint, Param
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import MAX_TASK, Params, integer
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.outputs import MAX_PIECE_BYTES, LogRequest, Piece
from hal.rest.answers import streamed_answer
from hal.rest.endpoint import BYTES
from hal.rest.rights import OWNERS
from hal.wire.frames.agent_keeper import Stream


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


def _log_request(params: Params, job: int) -> LogRequest:
    attempt = params.text("attempt")
    try:
        stream = Stream(params.text("stream", "stdout"))
    except ValueError:
        raise SpecError(f"stream: '{params.text('stream')}' is not one", hint="write stdout or stderr") from None
    return LogRequest(
        job=job,
        task=params.integer("task", 0, low=0, high=MAX_TASK),
        attempt=integer(attempt, "attempt", low=1, high=MAX_TASK) if attempt else None,
        rank=params.integer("rank", 0, low=0, high=MAX_TASK),
        stream=stream,
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
            Param(
                name="stream",
                text="stdout or stderr",
                schema={"type": "string", "enum": ["stdout", "stderr"], "default": "stdout"},
            ),
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
    ),
)
