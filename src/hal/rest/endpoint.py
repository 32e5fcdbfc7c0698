"""What a row of a table of endpoints says: everything about one operation of REST, once.

Its route, its right, the OpenAPI document and the reference page follow from the row. Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from hal.rest.bodies import body_as
from hal.rest.parameters import DEFAULT_PAGE, MAX_LIMIT
from hal.rest.rights import Right

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"


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
    required: bool = True
    """False: without one, all of its fields are as they are where they are not named."""
    media: str = JSON
    """Its media type, as the OpenAPI document names it."""
    stream_bytes: int = 0
    """Longest body that the handler reads piece by piece as it comes (`Call.stream`); 0: it is read whole, within the
    server's limit, before anything looks at it."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """One operation."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """Its variable parts in braces."""
    handler: Callable[[Any, Any], Awaitable[object]]
    """Asks the service: is given the daemon's API and the call (see `hal.rest.call`), returns what is encoded as JSON,
    or a response."""
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
    repeated: bool = False
    """Programs send it again and again, as planes put their advice: successes that are alike share entries of the audit
    log."""
    for_job_tokens: bool = False
    """A step's token by itself, which speaks for one job, may ask for it: the handler, or the check of the path, keeps
    to `call.visit.identity.only_job`."""
    for_strangers: bool = False
    """Answered without a token, too: it is how strangers find out whom to believe."""

    @property
    def operation(self) -> str:
        """Method and path, as rights are looked up by."""
        return f"{self.method} {self.path}"

    def matches(self, path: str) -> bool:
        """Whether a path is one of its own, as far as its fixed parts say."""
        parts, template = path.strip("/").split("/"), self.path.strip("/").split("/")
        return len(template) == len(parts) and all(
            fixed.startswith("{") or fixed == part for fixed, part in zip(template, parts, strict=True)
        )

    @property
    def query(self) -> tuple[str, ...]:
        """Names of the query parameters that it takes."""
        return tuple(param.name for param in self.params if param.where == "query")


def ref(name: str) -> dict[str, Any]:
    """A reference to a schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def body_of(kind: type[Struct], examples: dict[str, Any], *, required: bool = True) -> Body:
    """A JSON object of that type."""
    read = partial(body_as, kind=kind) if required else partial(_body_or_nothing, kind=kind)
    return Body(schema=ref(kind.__name__), examples=examples, kind=kind, read=read, required=required)


def _body_or_nothing(body: bytes, kind: type[Struct]) -> Struct:
    return body_as(body, kind) if body.strip() else kind()


def stream_of(most_bytes: int, media: str = BYTES) -> Body:
    """Bytes that the handler reads as they come.

    Args:
        most_bytes: longest body.
    """
    binary = {"type": "string", "format": "binary"} if media == BYTES else {"type": "string"}
    return Body(schema=binary, examples={}, media=media, stream_bytes=most_bytes)


# ── parameters of several endpoints ───────────────────────────────────────────────────────────────────────────────

INT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
TEXT: Final[dict[str, Any]] = {"type": "string"}
FLAG: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": "^([01]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|[Nn][Oo])?$",
}
"""`Params.flag` reads it: in small or capital letters, as programs in Python write True."""
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
