"""The hash chain of an audit log: what a line carries, what a checkpoint says, and how both are named and hashed.

Pure. Each line of a series (the lines of one user) carries the SHA-256 of the series' line before it, byte for byte as
that is in its file, without the end of line. Checkpoints are a series of their own, chained alike: each says where the
series end that have changed, and where those begin whose oldest lines were removed. So the hash of one checkpoint, the
head, stands for the whole log. Source: Schneier and Kelsey, ACM TISSEC 2(2), 1999, without their keys: what the head
was is told to others (docs/access.md).
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model.errors import SpecError, shown

GENESIS: Final = "0" * 64
"""What the first line of a series carries."""
STRANGERS: Final = "strangers"
OTHERS: Final = "others"
USER: Final = "user-"
CHAIN: Final = "chain"
"""The series of checkpoints."""
_NAME: Final = re.compile(r"(strangers|others|chain|user-.+)\.([0-9]{20})\.log")
_HEAD: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


class Link(Struct, frozen=True):
    """What a line of the log says of its place; other fields are not read."""

    sequence: int
    at_ms: int
    line: int = 0
    """Number in its series, from 1; 0: an earlier version wrote it, and it is in no chain."""
    previous: str = ""
    """SHA-256 of the line before it in its series."""


class End(Struct, frozen=True, array_like=True):
    """The newest line of a series."""

    sequence: int
    line: int
    digest: str


class Checkpoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where series begin and end. What it does not name is as the checkpoint before it says."""

    number: int
    """Ascending by one, from 1."""
    at_ms: int
    through: int
    """The newest sequence number for which the ends are complete."""
    ends: dict[str, End] = {}
    """By series."""
    begins: dict[str, int] = {}
    """By series, the number of the first line that was not removed to make room or for its age."""
    whole: int = 0
    """How many checkpoints from this one on name all series; those that none of them names are gone."""
    elsewhere: dict[str, str] = {}
    """Heads of other controllers' logs, as the store has them, by controller; noted when this one begins to lead."""
    previous: str


class Head(Struct, frozen=True, kw_only=True):
    """One checkpoint by its hash, which stands for all lines up to `through`."""

    number: int
    at_ms: int
    through: int
    digest: str

    @property
    def text(self) -> str:
        """`NUMBER:SHA-256`, as it is printed and given to `hal audit verify`."""
        return f"{self.number}:{self.digest}"


def digest_of_line(line: bytes) -> str:
    """The hash of a line without its end, hex: what `sha256sum` says."""
    return hashlib.sha256(line).hexdigest()


def read_head(text: str) -> tuple[int, str]:
    """The number and hash of a head's text.

    Raises:
        SpecError: it is none.
    """
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise SpecError(f"'{shown(text)}' is not a head", hint="write NUMBER:SHA-256, as `hal audit head` prints it")
    return int(match[1]), match[2]


def file_name(source: str, first: int) -> str:
    """The file of that series whose first line has that number."""
    return f"{source}.{first:020}.log"


def read_file_name(name: str) -> tuple[str, int] | None:
    """The series and the number of the first line; None: it is no file of an audit log."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


_LINKS: Final = msgspec.json.Decoder(Link)
_CHECKPOINTS: Final = msgspec.json.Decoder(Checkpoint)


def read_link(line: bytes) -> Link | None:
    """None: that is no whole line, as a power failure or a full disk leaves it."""
    try:
        return _LINKS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_checkpoint(line: bytes) -> Checkpoint | None:
    """None: that is no whole line."""
    try:
        return _CHECKPOINTS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class ChainState:
    """What checkpoints say, one after the other."""

    def __init__(self) -> None:
        self.ends: dict[str, End] = {}
        self.begins: dict[str, int] = {}
        self.known = False
        """All series are named: a whole listing was read."""
        self._listed: set[str] | None = None

    def read(self, checkpoint: Checkpoint) -> set[str]:
        """Take the next one in; returns the series that are gone with it."""
        self.ends |= checkpoint.ends
        self.begins |= checkpoint.begins
        if not checkpoint.whole:
            self._listed = None
            return set()
        self._listed = (self._listed or set()) | checkpoint.ends.keys()
        if checkpoint.whole > 1:
            return set()
        gone = self.ends.keys() - self._listed
        for source in gone:
            del self.ends[source]
            self.begins.pop(source, None)
        self.known, self._listed = True, None
        return gone
