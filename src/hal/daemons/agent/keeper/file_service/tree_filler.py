"""Fill a step's directory as the step's user; a short process for each.

Run as a script with `python -I -S`: `tree_filler.py UID GID`, in the directory. It becomes that user, for good, before
it reads anything. Through standard input come a line with the length of the order, the order (see `encode_order`) and
the contents of the files, one behind the other; to standard output goes `DONE`, or a line with the error.

The directory is new and nobody else can enter it while it is filled: links come last, so no file is written through
one. A step waits for this process, so it imports next to nothing and is a file of its own.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

DONE = b"done\n"
READ_BYTES = 1 << 20
MAX_LINE_BYTES = 10
MAX_ORDER_BYTES = 16 << 20
"""More than any manifest makes."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def encode_order(entries: Iterable[tuple[str, str, int, str]]) -> bytes:
    """The order for entries: path, kind (as in a manifest), size, target. None of the texts has a zero byte in it."""
    fields = "\0".join(f"{path}\0{kind}\0{size}\0{target}" for path, kind, size, target in entries).encode()
    return b"%d\n%b" % (len(fields), fields)


def become(uid: int, gid: int) -> None:
    """Become that user, if this is root."""
    os.umask(0o022)
    if os.geteuid() == 0 and uid:
        os.setgroups([gid])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def fill(source: BinaryIO) -> None:
    """Create what the order lists, with the contents that follow it.

    Raises:
        OSError: for example, the disk is full.
    """
    length = int(source.readline(MAX_LINE_BYTES))
    order = source.read(min(length, MAX_ORDER_BYTES))
    if len(order) != length:
        raise OSError(errno.EIO, "the order ended early")
    fields = iter(order.decode().split("\0") if order else ())
    made = {""}
    links = []
    for path, kind, size, target in zip(fields, fields, fields, fields, strict=True):
        check(path)
        if kind == "d":
            make(path, made)
            continue
        make(path.rpartition("/")[0], made)
        if kind == "l":
            links.append((path, target))
            continue
        fd = os.open(path, CREATE, 0o755 if kind == "x" else 0o644)
        try:
            write(fd, source, int(size))
        finally:
            os.close(fd)
    for path, target in links:
        os.symlink(target, path)


def write(fd: int, source: BinaryIO, size: int) -> None:
    """Write so many bytes to a file."""
    while size:
        data = source.read(min(size, READ_BYTES))
        if not data:
            raise OSError(errno.EIO, "the contents ended early")
        size -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]


def check(path: str) -> None:
    """Refuse a path that leads out of here; who sent the order has checked it, too."""
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise OSError(errno.EINVAL, "this leads out of the directory", path)


def make(path: str, made: set[str]) -> None:
    """Create a directory and those above it."""
    if path in made:
        return
    make(path.rpartition("/")[0], made)
    os.mkdir(path, 0o755)
    made.add(path)


def main(argv: list[str]) -> int:
    """Do it."""
    become(int(argv[1]), int(argv[2]))
    answer, code = DONE, 0
    try:
        with open(0, "rb", buffering=READ_BYTES, closefd=False) as source:
            fill(source)
    except (OSError, ValueError) as error:
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        answer, code = text.replace("\n", " ").encode(errors="replace") + b"\n", 1
    os.write(1, answer)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
