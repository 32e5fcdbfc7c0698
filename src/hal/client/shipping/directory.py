"""What a directory holds that is to be shipped, as far as names and sizes tell; no file is read.

Left out are what version control and Python keep beside the files (`ALWAYS_LEFT_OUT`), and what a file .halignore at
the top names, with the patterns of .gitignore; `!PATTERN` in it brings back what is left out always.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from hal.core.model.bundle import HINT, MAX_DEPTH, MAX_ENTRIES, EntryKind, check_relative
from hal.core.model.errors import NotFoundError, SpecError, shown
from hal.runtime.path_globs import IgnoreRules
from hal.runtime.regular_files import read_regular

IGNORE_FILE: Final = ".halignore"
MAX_IGNORE_BYTES: Final = 1 << 16
ALWAYS_LEFT_OUT: Final = (".git/", ".hg/", ".svn/", "__pycache__/", IGNORE_FILE)
# Looked up once, not for each of thousands of files.
FORMAT: Final = 0o170000
REGULAR: Final = stat.S_IFREG
LINKED: Final = stat.S_IFLNK
FILE: Final = EntryKind.FILE
PROGRAM: Final = EntryKind.PROGRAM
LINK: Final = EntryKind.LINK
LEAVE_OUT: Final = "leave it out: name it in a file .halignore in that directory"


class Listed(Struct, frozen=True, array_like=True, gc=False):
    """One entry."""

    path: str
    kind: EntryKind
    size: int
    target: str
    """Of a link."""
    mtime_ns: int
    ctime_ns: int
    inode: int


class Listing(NamedTuple):
    """A directory."""

    top: str
    """Its absolute path."""
    entries: Sequence[Listed]
    """Ascending by path."""

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self.entries)

    @property
    def newest_ns(self) -> int:
        """When something in it was changed last."""
        return max((one.ctime_ns for one in self.entries), default=0)


def list_directory(place: str) -> Listing:
    """List a directory that is to be shipped.

    Raises:
        NotFoundError: there is no such directory.
        SpecError: it has too much in it, or something that cannot be shipped.
    """
    top = os.path.abspath(os.path.expanduser(place))
    rules = _rules(top)
    found: list[Listed] = []
    stack = [""]
    while stack:
        above = stack.pop()
        try:
            fd = os.open(f"{top}/{above}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except NotADirectoryError:
            raise NotFoundError(
                f"ship: {shown(place)} is not a directory", hint="name the directory of the job's files"
            ) from None
        except FileNotFoundError:
            raise NotFoundError(
                f"ship: there is no directory {shown(os.path.join(top, above).rstrip('/'))}",
                hint="name the directory of the job's files",
            ) from None
        except OSError as error:
            raise SpecError(f"ship: {shown(above or top)} cannot be read: {error.strerror}", hint=LEAVE_OUT) from error
        try:
            before = len(found) + len(stack)
            _list_one(fd, above, rules, found, stack)
        finally:
            os.close(fd)
        if above and len(found) + len(stack) == before:
            found.append(Listed(above[:-1], EntryKind.DIRECTORY, 0, "", 0, 0, 0))
        if len(found) + len(stack) > MAX_ENTRIES or above.count("/") >= MAX_DEPTH:
            raise SpecError(
                f"ship: {shown(top)} has more than {MAX_ENTRIES:,} files, or {MAX_DEPTH} levels of directories",
                hint=HINT,
            )
    found.sort(key=attrgetter("path"))
    return Listing(top, found)


def _list_one(fd: int, above: str, rules: IgnoreRules, found: list[Listed], stack: list[str]) -> None:
    """List one directory: its files and links to `found`, those below it to `stack`.

    Raises:
        SpecError: something in it cannot be shipped.
    """
    with os.scandir(fd) as entries:  # through the descriptor: each look-up is of one name, not of a whole path
        for entry in entries:
            name = entry.name
            path = above + name
            is_directory = entry.is_dir(follow_symlinks=False)
            if rules.leaves_out(path, name, directory=is_directory):
                continue
            if is_directory:
                stack.append(f"{path}/")
                continue
            if not path.isascii():
                check_relative(path)
            size, target = 0, ""
            try:
                info = entry.stat(follow_symlinks=False)
                mode = info.st_mode
                if (kind_of := mode & FORMAT) == REGULAR:
                    kind, size = (PROGRAM if mode & 0o111 else FILE), info.st_size
                elif kind_of == LINKED:
                    kind, target = LINK, os.readlink(name, dir_fd=fd)
                else:
                    raise SpecError(f"ship: {shown(path)} is neither a file nor a directory nor a link", hint=LEAVE_OUT)
            except OSError as error:
                raise SpecError(f"ship: {shown(path)} cannot be read: {error.strerror}", hint=LEAVE_OUT) from error
            found.append(Listed(path, kind, size, target, info.st_mtime_ns, info.st_ctime_ns, info.st_ino))


def _rules(top: str) -> IgnoreRules:
    try:
        text = read_regular(os.path.join(top, IGNORE_FILE), MAX_IGNORE_BYTES, follow=True).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        text = ""
    except OSError as error:
        raise SpecError(f"ship: {IGNORE_FILE} cannot be read: {error.strerror}") from error
    return IgnoreRules([*ALWAYS_LEFT_OUT, *text.splitlines()])
