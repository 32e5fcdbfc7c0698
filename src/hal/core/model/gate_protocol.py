"""The conversation between a node's agent and the service of a gate: one line of JSON each way.

Pure. The agent connects to `HAL_HOME/gates/NAME.sock`, writes one request and a newline, and reads one answer and a
newline; then either side closes. docs/gates.md is the same for authors of services.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from hal.core.model.errors import SpecError
from hal.core.model.gate import MAX_ARGUMENT_BYTES, GatePhase

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 1 << 16
"""Longest request with its newline: a service need not read more."""
MAX_ANSWER_BYTES: Final = 4_096
"""Longest answer with its newline; a longer one is malformed."""
MAX_REASON_CHARS: Final = 300
"""Of a reason; the rest is cut off."""
ANSWER_MS: Final = 10_000
"""A service answers within this time; one that needs longer answers `waiting` meanwhile."""
SHORTEST_AGAIN_MS: Final = 20
LONGEST_AGAIN_MS: Final = 60_000
_CONTROL: Final = re.compile(r"[\u0000-\u001f\u007f-\u009f]")


class GateAsk(StrEnum):
    """What the agent asks for."""

    ENTER = "enter"
    """Whether the attempt may continue on this node: before its processes begin, or after they have ended."""
    CANCEL = "cancel"
    """The attempt went away before its processes began: what was done for it may be undone. The answer is ignored."""


class GateRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A request. `job`, `task`, `attempt`, `rank` and `phase` identify what it is about: the same ones may be asked for
    again, also on another connection, and get the same answer."""

    version: int = VERSION
    ask: GateAsk
    gate: str
    phase: GatePhase
    job: int
    task: int
    attempt: int
    """Counts from 1."""
    rank: int
    """Of the node among those of the attempt; counts from 0."""
    node: str
    user: str
    """Who submitted the job, as the controller knows it."""
    deadline_ms: int
    """How long the gate may still take; 0 in a cancel."""
    argument: Annotated[str, Meta(extra_json_schema={"maxLength": MAX_ARGUMENT_BYTES})]
    """From the user, as it is: not to be trusted."""


class GateVerdictWord(StrEnum):
    """What a service answers."""

    READY = "ready"
    WAITING = "waiting"
    """Not yet: the agent asks again."""
    REFUSED = "refused"
    """It will not be: the gate's policy decides what follows."""


class GateAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An answer; unknown fields are ignored."""

    state: GateVerdictWord
    reason: str = ""
    """For people, one line: why not, or for what it waits."""
    again_ms: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    """When to ask again, from now; 0: the agent decides. It is kept between 20 ms and a minute."""


_ENCODER: Final = msgspec.json.Encoder()
_REQUEST: Final = msgspec.json.Decoder(GateRequest)
_ANSWER: Final = msgspec.json.Decoder(GateAnswer)


def encode_request(request: GateRequest) -> bytes:
    """The line, with its newline."""
    return _ENCODER.encode(request) + b"\n"


def decode_request(line: bytes) -> GateRequest:
    """Read a request.

    Raises:
        SpecError: it is malformed, or of another version.
    """
    try:
        request = _REQUEST.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SpecError(f"not a request of a gate: {error}") from None
    if request.version != VERSION:
        raise SpecError(f"a request of version {request.version}; this is {VERSION}")
    return request


def encode_answer(answer: GateAnswer) -> bytes:
    """The line, with its newline."""
    return _ENCODER.encode(answer) + b"\n"


def decode_answer(line: bytes) -> GateAnswer:
    """Read an answer; its reason is cut to one line of `MAX_REASON_CHARS`.

    Raises:
        SpecError: it is malformed or too long.
    """
    if len(line) > MAX_ANSWER_BYTES:
        raise SpecError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    if not line.endswith(b"\n"):
        raise SpecError("no whole line was answered" if line else "the connection was closed without an answer")
    try:
        answer = _ANSWER.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SpecError(f"not an answer of a gate: {error}") from None
    reason = _CONTROL.sub(" ", answer.reason)[:MAX_REASON_CHARS]
    return answer if reason == answer.reason else msgspec.structs.replace(answer, reason=reason)


def protocol_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of both lines."""
    (request, answer), definitions = msgspec.json.schema_components(
        (GateRequest, GateAnswer), ref_template="#/$defs/{name}"
    )
    for name, definition in definitions.items():
        definition["description"] = " ".join(definition.get("description", name).split())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "HAL gate protocol: a request or an answer, one line each",
        "anyOf": [request, answer],
        "$defs": definitions,
    }
