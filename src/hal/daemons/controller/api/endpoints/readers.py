"""The endpoints about registered readers of the feeds: register, list, acknowledge, remove."""

from __future__ import annotations

from typing import Final

from msgspec import UnsetType

from hal.core.model import DeniedError, SpecError
from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import MAX_SEQUENCE, integer
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.readers import ReaderBody, ReaderPosition, ReadersList, ReaderView
from hal.rest.rights import OPERATORS

READER: Final = Param(
    name="reader",
    text="name of a registered reader: what is before the cursor counts as read by it, and without a cursor it "
    "continues where it was; operators only",
    schema=TEXT,
    example="archive",
)
_NAME: Final = Param(name="name", where="path", text="name of the reader", schema=TEXT, example="archive")


def read_on(api: ControllerApi, call: Call, name: str, feed: str, cursor: int | None) -> int:
    """Note that a registered reader has read a feed up to a cursor; None: it continues where it was.

    Returns: behind which number it reads.
    Raises:
        DeniedError: the caller has no right to readers.
        NotFoundError, ConflictError: see `Readers.acknowledge`.
    """
    if call.visit.own_only:
        raise DeniedError(f"{call.visit.identity.user} may not read as a registered reader", hint="ask an operator")
    position = api.readers.note(name, feed, cursor)
    return position if cursor is None else cursor


async def list_readers(api: ControllerApi, call: Call) -> object:
    """All of them."""
    return api.readers.all()


async def register_reader(api: ControllerApi, call: Call) -> object:
    """Register a reader, or change what it follows."""
    asked: ReaderBody = call.body
    call.visit.targets.append(call.path("name"))
    return await api.readers.register(call.path("name"), asked, call.submitter)


async def acknowledge(api: ControllerApi, call: Call) -> object:
    """Note what a reader has read."""
    asked: ReaderPosition = call.body
    read: dict[str, int] = {}
    if not isinstance(asked.attempts, UnsetType):
        read["attempts"] = integer(asked.attempts, "attempts", low=0, high=MAX_SEQUENCE)
    if not isinstance(asked.events, UnsetType):
        read["events"] = integer(str(asked.events), "events", low=0, high=MAX_SEQUENCE)
    if not read:
        raise SpecError("neither attempts nor events is given", hint='like {"attempts": "1042"}')
    return await api.readers.acknowledge(call.path("name"), read)


async def remove_reader(api: ControllerApi, call: Call) -> object:
    """Remove a reader."""
    call.visit.targets.append(call.path("name"))
    return await api.readers.forget(call.path("name"))


READERS: Final = (
    Endpoint(
        method="GET",
        path="/v1/readers",
        handler=list_readers,
        right=OPERATORS,
        name="listReaders",
        tag="events",
        summary="List the registered readers of the feeds, and how far each has read",
        result=ReadersList,
    ),
    Endpoint(
        method="PUT",
        path="/v1/readers/{name}",
        handler=register_reader,
        right=OPERATORS,
        name="registerReader",
        tag="events",
        summary="Register a reader of ended attempts, events, or both",
        text=(
            "What a registered reader has not read is kept for it, within the bounds of `[readers]` in hal.toml; "
            "beyond them it is told what was lost. Registering it again keeps its positions."
        ),
        params=(_NAME,),
        body=body_of(ReaderBody, {"both": {}, "attempts": {"feeds": ["attempts"], "begin": "oldest"}}),
        result=ReaderView,
        problems=("400", "413", "503"),
    ),
    Endpoint(
        method="POST",
        path="/v1/readers/{name}/acknowledge",
        handler=acknowledge,
        right=OPERATORS,
        name="acknowledge",
        tag="events",
        summary="Note durably up to where a reader has read",
        text="Not needed by readers that read on with `reader=NAME`. A position never goes back.",
        params=(_NAME,),
        body=body_of(ReaderPosition, {"attempts": {"attempts": "1042"}, "events": {"events": 977}}),
        result=ReaderView,
        problems=("400", "404", "409", "413", "503"),
        repeated=True,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/readers/{name}",
        handler=remove_reader,
        right=OPERATORS,
        name="removeReader",
        tag="events",
        summary="Remove a reader: nothing is kept for it any more",
        params=(_NAME,),
        result=ReaderView,
        problems=("404", "503"),
    ),
)
