"""Every error as a problem document (RFC 9457) with HAL's own `code` and a `hint` that says what to do next."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException

from hal.core.model import (
    ConflictError,
    DeniedError,
    HALError,
    InternalError,
    NotFoundError,
    OverloadedError,
    SpecError,
    StoreError,
    TimedOutError,
    UnreachableError,
)
from hal.rest.errors import EndingError, HeadersError, TooLargeError, TooSlowError
from hal.rest.identity import UnauthorizedError, Visit
from hal.rest.limiter import TooManyError
from hal.rest.problem import Problem
from hal.runtime.line_budget import BudgetedLogs

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = 1
TYPE_BASE = "https://hal-scheduler.dev/problems/"
"""Prefix of `type`; an identifier, not a page that must exist."""


STATUS: dict[type[HALError], tuple[int, str]] = {
    UnauthorizedError: (401, "No valid token"),
    TooSlowError: (408, "Request too slow"),
    TooLargeError: (413, "Request too large"),
    HeadersError: (431, "Headers too large"),
    TooManyError: (429, "Too many requests"),
    SpecError: (400, "Invalid request"),
    DeniedError: (403, "Denied"),
    NotFoundError: (404, "Not found"),
    ConflictError: (409, "Conflict"),
    EndingError: (503, "The daemon ends"),
    OverloadedError: (503, "Overloaded"),
    UnreachableError: (503, "Not reachable"),
    StoreError: (503, "Not durable"),
    TimedOutError: (504, "Timed out"),
    InternalError: (500, "Fault of HAL"),
}
"""HTTP status and title by kind of error; the nearest base class counts. A daemon's own kind of error may name another
pair in its class, as `answered_with`."""

_HTTP_CODES = {400: "invalid-request", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}


def problem_of(error: HALError) -> Problem:
    """The document of one of HAL's own errors."""
    status, title = _status_of(type(error))
    return Problem(
        type=TYPE_BASE + error.code,
        title=title,
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
    )


def _status_of(error: type[HALError]) -> tuple[int, str]:
    for kind in error.__mro__:
        found: tuple[int, str] | None = vars(kind).get("answered_with") or STATUS.get(kind)
        if found is not None:
            return found
    return 500, "Fault of HAL"


def answer(problem: Problem, headers: dict[str, str] | None = None) -> Response[bytes]:
    """Return the response with this problem."""
    sent = dict(headers or {})
    if problem.status == 503:
        sent.setdefault("Retry-After", str(RETRY_AFTER_S))
    if problem.status == 401:
        sent.setdefault("WWW-Authenticate", "Bearer")
    return Response(
        content=msgspec.json.encode(problem), status_code=problem.status, media_type=PROBLEM_JSON, headers=sent
    )


def on_hal_error(_: Request[Any, Any, Any], error: HALError) -> Response[bytes]:
    """One of HAL's own errors."""
    return answer(problem_of(error))


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what Litestar refuses: an unknown path or method."""
    status = error.status_code
    hint, detail = "", error.detail
    headers = {k: v for k, v in (error.headers or {}).items() if k.lower() == "allow"}
    if status == 404:
        detail = f"there is nothing at {request.method} {request.url.path}"
        hint = "GET /v1/openapi.json lists all paths"
    elif isinstance(error, MethodNotAllowedException):
        detail = f"{request.method} is not possible at {request.url.path}"
        hint = f"possible: {headers['Allow']}" if "Allow" in headers else ""
    code = _HTTP_CODES.get(status, "invalid-request" if status < 500 else "internal")
    title = {404: "Not found", 405: "Method not allowed"}.get(status, "Invalid request" if status < 500 else "Fault")
    return answer(
        Problem(type=TYPE_BASE + code, title=title, status=status, detail=detail, code=code, hint=hint), headers
    )


class OnFault:
    """An unexpected exception: logged with its trace, within its user's share of lines; answered without it."""

    def __init__(self, logs: BudgetedLogs, log_name: str) -> None:
        """
        Args:
            log_name: of the log file that gets the trace.
        """
        self._logs = logs
        self._log_name = log_name

    def __call__(self, request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        visit: Visit | None = request.scope["state"].get("visit")
        log = self._logs.of("" if visit is None else visit.identity.user)
        log.error("a request met a fault", method=request.method, path=request.url.path, exc_info=error)
        fault = InternalError(
            f"{type(error).__name__} in {request.method} {request.url.path}", hint=f"see {self._log_name}"
        )
        return answer(problem_of(fault))
