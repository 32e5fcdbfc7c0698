"""A daemon beside HAL's own, with HTTP like the controller's: everybody keeps items on a shelf, and operators see all.

python examples/shelf/shelf.py            # beside the HAL of $HAL_HOME, which is running
curl --unix-socket "$(cat $HAL_HOME/run/socket-dir)/shelf.sock" -T FILE http://hal/v1/items/NAME
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from hal.core.model import NotFoundError, OverloadedError, SpecError
from hal.core.model.config_sections import Section, read_own
from hal.core.model.job import is_name
from hal.rest.answers import streamed_answer
from hal.rest.call import Call
from hal.rest.daemon import interface_of, serve
from hal.rest.endpoint import BYTES, TEXT, Endpoint, Param, stream_of
from hal.rest.limits import Limits
from hal.rest.openapi import About
from hal.rest.rights import EVERYBODY, OWNERS
from hal.runtime.config_file import config_text
from hal.runtime.home import find_home
from hal.runtime.interface import Runtime
from hal.runtime.process import run

MAX_ITEM_BYTES = 1 << 30
PIECE_BYTES = 1 << 16


class ShelfSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[shelf]`"""

    max_items: Annotated[int, Meta(description="items that a user may keep", ge=1)] = 1_000
    requests_per_s: Annotated[int, Meta(description="sustained rate of requests of each user", ge=1)] = 100


SHELF = Section(name="shelf", kind=ShelfSection, reader="shelf", about="Items that users keep.")


class Item(Struct, frozen=True, kw_only=True):
    """What was kept."""

    name: str
    bytes: int


class Shelf:
    """A directory for each user."""

    def __init__(self, runtime: Runtime, directory: Path, section: ShelfSection) -> None:
        self.run, self.directory, self.section = runtime.run_blocking, directory, section

    def path(self, user: str, name: str) -> Path:
        if not (is_name(user) and is_name(name)) or "/" in user + name or name.startswith("."):
            raise SpecError(f"'{name[:40]}' is no name of an item")
        return self.directory / user / name


async def put(shelf: Shelf, call: Call) -> object:
    """Keep what comes: whole, or not at all."""
    path = shelf.path(call.visit.identity.user, call.path("name"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists() and len(os.listdir(path.parent)) >= shelf.section.max_items:
        raise OverloadedError(f"there are {shelf.section.max_items} items", hint="hal.toml: shelf.max_items")
    file: BinaryIO = tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False)  # noqa: SIM115
    try:
        async for piece in call.stream():
            await shelf.run(partial(file.write, piece))
        size = file.tell()
        file.close()
        os.replace(file.name, path)
    except BaseException:
        file.close()
        os.unlink(file.name)
        raise
    call.visit.targets.append(f"item {path.name}")
    return Item(name=path.name, bytes=size)


async def get(shelf: Shelf, call: Call) -> object:
    """What was kept, piece by piece; other users' items are as if they were not there, but for operators."""
    me = call.visit.identity.user
    user = call.params.text("user") or me
    call.visit.not_own = call.visit.own_only and user != me
    path = shelf.path(user, call.path("name"))
    if call.visit.not_own or not path.is_file():
        raise NotFoundError(f"there is no item '{path.name}'")
    return streamed_answer(call, pieces(shelf, path.open("rb")))


async def pieces(shelf: Shelf, file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await shelf.run(partial(file.read, PIECE_BYTES)):
            yield piece


NAME = Param(name="name", where="path", text="name of the item", schema=TEXT, example="notes")
ABOUT = About(
    title="Shelf", versions=(1,), summary="Keep items.", description="Items of each user, as bytes.",
    server="the Unix socket `shelf.sock`", tags=("items", "access", "service"),
)  # fmt: skip
INTERFACE = interface_of(
    ABOUT,
    (
        Endpoint(
            method="PUT", path="/v1/items/{name}", handler=put, right=EVERYBODY, name="putItem", tag="items",
            summary="Keep an item", params=(NAME,), body=stream_of(MAX_ITEM_BYTES), result=Item,
            problems=("413", "503"),
        ),
        Endpoint(
            method="GET", path="/v1/items/{name}", handler=get, right=OWNERS, name="getItem", tag="items",
            summary="Read an item", params=(NAME, Param(name="user", text="whose; default: your own", schema=TEXT)),
            media={BYTES: {}}, problems=("404",),
        ),
    ),
)  # fmt: skip


async def main(runtime: Runtime) -> None:
    """Serve until asked to stop."""
    section = read_own(config_text(runtime.paths.config), SHELF, str(runtime.paths.config))
    shelf = Shelf(runtime, runtime.paths.root / "shelf", section)
    server = await serve(
        runtime, INTERFACE, shelf, limits=Limits(requests_per_s=section.requests_per_s, section="shelf")
    )
    runtime.log.info("ready")
    await runtime.stopping.wait()
    await server.stop()


if __name__ == "__main__":
    sys.exit(run("shelf", find_home(), main))
