"""`[supervision]` of hal.toml: planes that may run beside the controller. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from hal.core.model.config_sections import Section
from hal.core.model.errors import SpecError

MAX_PLANES: Final = 64
MAX_COMMAND_WORDS: Final = 100
MAX_HEALTH_CHARS: Final = 1_000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")


class PlaneSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[supervision.planes.NAME]`: a process beside the controller, in any language."""

    command: Annotated[
        tuple[str, ...],
        Meta(
            description="program (its absolute path, or found in PATH) and arguments; it runs in the foreground, with "
            "HAL_HOME and HAL_PLANE in its environment, and ends on SIGTERM"
        ),
    ]
    health: Annotated[
        str,
        Meta(
            description="where it answers `GET /v1/health` with status 200 while it works: a Unix socket (its absolute "
            "path, or its name among HAL's sockets), or http://127.0.0.1:PORT; empty: it works while it runs"
        ),
    ] = ""


class SupervisionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[supervision]`"""

    planes: dict[str, PlaneSection] = {}


NO_SUPERVISION_SECTION: Final = SupervisionSection()


def check_supervision(section: SupervisionSection) -> SupervisionSection:
    """Check the section and return it.

    Raises:
        SpecError: names the key.
    """
    if len(section.planes) > MAX_PLANES:
        raise SpecError(f"supervision.planes: {len(section.planes)} planes; at most {MAX_PLANES} are allowed")
    for name, plane in section.planes.items():
        where = f"supervision.planes.{name}"
        if not _NAME.match(name):
            raise SpecError(f"{where}: no name of a plane", hint="small letters, digits, '_', '-'; a letter first")
        if not plane.command or not plane.command[0]:
            raise SpecError(f"{where}.command: empty", hint='for example command = ["/opt/site/bin/prices"]')
        if len(plane.command) > MAX_COMMAND_WORDS or any("\0" in word for word in plane.command):
            raise SpecError(f"{where}.command: no command line", hint=f"at most {MAX_COMMAND_WORDS} words")
        if not _may_answer(plane.health):
            raise SpecError(f"{where}.health: neither a path nor http://HOST:PORT")
    return section


def _may_answer(where: str) -> bool:
    """Whether a plane could say there how it is."""
    if len(where) > MAX_HEALTH_CHARS or "\0" in where or where.startswith("https:"):
        return False
    if not where.startswith("http:"):
        return True
    try:
        parts = urlsplit(where)
        return where.startswith("http://") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


SUPERVISION: Final = Section(
    name="supervision",
    kind=SupervisionSection,
    reader="supervisor",
    about="Planes: processes that `hal up --with NAME,…` runs beside the controller, and starts again when they end.",
    check=check_supervision,
)
