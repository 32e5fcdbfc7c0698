"""Errors as problem documents: status by the nearest base class, headers that say when and how to come again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from litestar import Request
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

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
from hal.daemons.controller.api.errors import BrokeOffError, NoLeaderError
from hal.rest.errors import EndingError, HeadersError, TooLargeError, TooSlowError
from hal.rest.identity import UnauthorizedError
from hal.rest.limiter import TooManyError
from hal.rest.problem import Problem
from hal.rest.problems import on_hal_error, on_http_error, problem_of

REQUEST: Any = Request(
    {"type": "http", "method": "GET", "path": "/v1/nowhere", "query_string": b"", "root_path": "", "headers": [],
     "server": ("hal", 80), "scheme": "http"}  # type: ignore[arg-type]
)  # fmt: skip


class StrangeSpecError(SpecError):
    """A kind that the table does not name."""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SpecError("x"), 400),
        (StrangeSpecError("x"), 400),
        (UnauthorizedError("x"), 401),
        (DeniedError("x"), 403),
        (NotFoundError("x"), 404),
        (TooSlowError("x"), 408),
        (ConflictError("x"), 409),
        (TooLargeError("x"), 413),
        (TooManyError("x", hint="", retry_after_s=1, first=False), 429),
        (HeadersError("x"), 431),
        (InternalError("x"), 500),
        (HALError("x"), 500),
        (BrokeOffError("x"), 502),
        (NoLeaderError("x"), 503),
        (EndingError("x"), 503),
        (OverloadedError("x"), 503),
        (UnreachableError("x"), 503),
        (StoreError("x"), 503),
        (TimedOutError("x"), 504),
    ],
)
def test_every_error_has_its_status(error: HALError, status: int) -> None:
    """That of its kind, else of the nearest base class that has one."""
    problem = problem_of(error)
    assert (problem.status, problem.code, problem.detail) == (status, error.code, "x")
    assert problem.type.endswith(f"/{error.code}")


@pytest.mark.parametrize(
    ("error", "header"),
    [(OverloadedError("x"), ("Retry-After", "1")), (UnauthorizedError("x"), ("WWW-Authenticate", "Bearer"))],
)
def test_an_answer_says_how_to_come_again(error: HALError, header: tuple[str, str]) -> None:
    """503: when; 401: with what."""
    answer = on_hal_error(REQUEST, error)
    assert header in answer.headers.items()
    assert answer.media_type == "application/problem+json"


def test_other_answers_say_nothing_of_coming_again() -> None:
    """A mistake does not become right by waiting."""
    assert not {"Retry-After", "WWW-Authenticate"} & set(on_hal_error(REQUEST, SpecError("x")).headers)


def told(error: HTTPException) -> tuple[Problem, dict[str, Any]]:
    """What is answered where the framework refuses."""
    answer = on_http_error(REQUEST, error)
    return msgspec.json.decode(answer.content, type=Problem), dict(answer.headers)


def test_an_unknown_path_and_a_wrong_method_say_what_there_is() -> None:
    """404 names the path and the description; 405 names the methods that are possible."""
    problem, _ = told(NotFoundException())
    assert (problem.status, problem.code) == (404, "not-found")
    assert problem.detail == "there is nothing at GET /v1/nowhere"
    problem, headers = told(MethodNotAllowedException(headers={"Allow": "POST", "X-Other": "1"}))
    assert (problem.status, problem.code, problem.hint) == (405, "method-not-allowed", "possible: POST")
    assert headers == {"Allow": "POST"}


def test_any_other_refusal_of_the_framework_keeps_its_status() -> None:
    """Below 500 the request is at fault, else HAL."""
    assert told(HTTPException(status_code=422, detail="x"))[0].code == "invalid-request"
    assert told(HTTPException(status_code=500, detail="x"))[0].code == "internal"
