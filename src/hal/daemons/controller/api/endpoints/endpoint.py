"""What a row of the table of endpoints says: everything about one operation of REST, once.

Its route, its right, the OpenAPI document and the reference page follow from the row; see `table`. Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from hal.daemons.controller.access.roles import Right
from hal.daemons.controller.api.requests.bodies import body_as
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import DEFAULT_PAGE, MAX_LIMIT

ABOUT_JOBS: Final = ("/v1/jobs", "/v1/events")
"""How the paths of what is about jobs begin: elsewhere a token that is narrowed to some of them has a user's rights."""


class Param(Struct, frozen=True, kw_only=True):
    """A parameter of path, query or header."""

    name: str
    text: str
    schema: dict[str, Any]
    where: str = "query"
    example: Any = None


class Body(Struct, frozen=True, kw_only=True):
    """What a request carries."""

    schema: dict[str, Any]
    examples: dict[str, Any]
    kind: type[Struct] | None = None
    """Its type, described among the components; None: the schema is described there by hand."""
    read: Callable[[bytes], Any] | None = None
    """Reads it, beside the loop where it is large; None: the handler does, from the bytes."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """One operation."""

    method: Literal["GET", "POST", "PUT", "PATCH"]
    path: str
    """Its variable parts in braces."""
    handler: Callable[[Any, Call], Awaitable[object]]
    """Asks the service: is given the controller's API and the call, returns what is encoded as JSON, or a response."""
    right: Right
    name: str
    """The operation's id."""
    tag: str
    summary: str
    text: str = ""
    params: tuple[Param, ...] = ()
    body: Body | None = None
    result: type[Struct] | None = None
    """Type of the JSON that answers; None for other media."""
    media: dict[str, dict[str, Any]] = {}
    """Other media that answer, with their schemas."""
    headers: dict[str, str] = {}
    """Headers of the answer beside those that every answer has."""
    status: int = 200
    or_status: dict[int, str] = {}
    """Other statuses with the same answer, and when."""
    problems: tuple[str, ...] = ()
    """Statuses of refusals beside those that every request can meet."""
    for_strangers: bool = False
    """Answered without a token, too: it is how strangers find out whom to believe."""

    @property
    def operation(self) -> str:
        """Method and path, as rights are looked up by."""
        return f"{self.method} {self.path}"

    @property
    def query(self) -> tuple[str, ...]:
        """Names of the query parameters that it takes."""
        return tuple(param.name for param in self.params if param.where == "query")

    @property
    def about_jobs(self) -> bool:
        """See `ABOUT_JOBS`."""
        return self.path.startswith(ABOUT_JOBS)


def ref(name: str) -> dict[str, Any]:
    """A reference to a schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def body_of(kind: type[Struct], examples: dict[str, Any]) -> Body:
    """A JSON object of that type."""
    return Body(schema=ref(kind.__name__), examples=examples, kind=kind, read=partial(body_as, kind=kind))


# ── parameters of several endpoints ───────────────────────────────────────────────────────────────────────────────

INT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
TEXT: Final[dict[str, Any]] = {"type": "string"}
FLAG: Final[dict[str, Any]] = {"type": "string", "enum": ["0", "1", "true", "false", "yes", "no", ""]}
ID: Final[dict[str, Any]] = {"type": "string", "pattern": "^[0-9]{1,18}$"}
JOB: Final = Param(name="job", where="path", text="job id", schema=ID, example="42")
NODE: Final = Param(name="name", where="path", text="node name", schema=TEXT, example="n1")
LIMIT: Final = Param(
    name="limit",
    text="maximum number of entries on a page",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_PAGE},
)
CURSOR: Final = Param(
    name="cursor",
    text="`cursor` of the previous page",
    schema={"type": "string", "pattern": "^[0-9]{0,19}$"},
)
STATE: Final = Param(
    name="state",
    text="comma list of pending, held, allocated, preparing, running, suspended, finalising, succeeded, failed, "
    "timed-out, cancelled, or active, live, ended",
    schema=TEXT,
    example="running,pending",
)
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
