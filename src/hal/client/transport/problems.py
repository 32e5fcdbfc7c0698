"""Problem documents (RFC 9457) turned back into the errors that the controller raised."""

from __future__ import annotations

from typing import Final

from hal.core.model.errors import (
    ERRORS_BY_CODE,
    ConflictError,
    DeniedError,
    HALError,
    InternalError,
    NotFoundError,
    OverloadedError,
    SpecError,
    TimedOutError,
    UnreachableError,
)
from hal.core.model.printable import printable

MAX_QUOTED = 200
"""How much of an answer that is not understood is shown."""

_BY_STATUS: dict[int, type[HALError]] = {
    400: SpecError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    405: InternalError,
    408: TimedOutError,
    409: ConflictError,
    413: SpecError,
    422: SpecError,
    429: OverloadedError,
    502: UnreachableError,
    503: OverloadedError,
    504: TimedOutError,
}

NO_LEADER: Final = "no-leader"
"""Of a follower while nobody leads: nothing was done."""
BROKE_OFF: Final = "broke-off"
"""Of a follower that lost the leader before it answered: done or not."""
ENDING: Final = "ending"
"""Of a controller that ended before it answered: done or not."""
_BY_CODE: Final[dict[str, type[HALError]]] = dict.fromkeys((NO_LEADER, BROKE_OFF, ENDING), UnreachableError)


def error_from_answer(status: int, body: bytes) -> HALError:
    """The error that a problem document (RFC 9457) names, or one by HTTP status when there is none."""
    code, title, detail, hint = _fields(status, body)
    message = detail or title or f"the controller answered with status {status}"
    kind = ERRORS_BY_CODE.get(code) or _BY_CODE.get(code) or _BY_STATUS.get(status, HALError if code else InternalError)
    # Programs show errors by means of their own: what a server says is to act on none of their terminals.
    error = kind(printable(message, lines=True), hint=printable(hint, lines=True))
    if code:
        error.code = printable(code)  # a finer one than its class has, as `unauthorized` is a kind of denied
    return error


def _fields(status: int, body: bytes) -> tuple[str, str, str, str]:
    """Code, title, detail and hint of a problem document; of another body, its beginning as the detail."""
    import json

    try:
        problem = json.loads(body)
        fields = [problem.get(name, "") for name in ("code", "title", "detail", "hint")]
        if all(isinstance(field, str) for field in fields):
            return fields[0], fields[1], fields[2], fields[3]
    except (ValueError, AttributeError, RecursionError):
        pass
    shown = body[:MAX_QUOTED].decode(errors="replace").strip()
    return "", "", f"the controller answered with status {status}{f': {shown}' if shown else ''}", ""
