"""What rows of the controller's table share: parameters of several endpoints, and which rows are about jobs. Pure."""

from __future__ import annotations

from typing import Any, Final

from hal.rest.endpoint import CURSOR, FLAG, INT, LIMIT, TEXT, Body, Endpoint, Param, body_of, ref

__all__ = [
    "ABOUT_JOBS",
    "CURSOR",
    "DEFAULT_WAIT_S",
    "FLAG",
    "ID",
    "INT",
    "JOB",
    "KEY",
    "LIMIT",
    "NODE",
    "STATE",
    "TEXT",
    "TIMEOUT",
    "Body",
    "Endpoint",
    "Param",
    "body_of",
    "is_about_jobs",
    "ref",
]

ABOUT_JOBS: Final = ("/v1/jobs", "/v1/attempts", "/v1/events")
"""How the paths of what is about jobs begin: elsewhere a token that is narrowed to some of them has a user's rights."""

ID: Final[dict[str, Any]] = {"type": "string", "pattern": "^[0-9]{1,18}$"}
JOB: Final = Param(name="job", where="path", text="job id", schema=ID, example="42")
NODE: Final = Param(name="name", where="path", text="node name", schema=TEXT, example="n1")
STATE: Final = Param(
    name="state",
    text="comma list of pending, held, allocated, preparing, running, suspended, finalising, succeeded, failed, "
    "timed-out, cancelled, or active, live, ended",
    schema=TEXT,
    example="running,pending",
)
TASKS: Final = Param(name="tasks", text="`7-9,12` by number, `[7-9,12]` by HAL_ARRAY_INDEX; default: all", schema=TEXT)
DEFAULT_WAIT_S: Final = 30.0
TIMEOUT: Final = Param(
    name="timeout_s",
    text="maximum wait",
    schema={"type": "number", "minimum": 0, "maximum": 600, "default": round(DEFAULT_WAIT_S)},
)
KEY: Final = Param(
    name="Idempotency-Key",
    where="header",
    text="a request repeated with the same key is done once",
    schema={"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]([ -~]*[!-~])?$"},
)


def is_about_jobs(row: Endpoint) -> bool:
    """See `ABOUT_JOBS`."""
    return row.path.startswith(ABOUT_JOBS)
