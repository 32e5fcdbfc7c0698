"""Pack what is collected of a step's directory as the step's user; a short process for each.

Run as a script with `python -I -S`: `tree_packer.py UID GID`, in the directory. It becomes that user, for good, before
it reads anything. What to do comes through standard input, what came of it goes to standard output: first a line of
JSON, with `error` where it failed, then a tar file.

What is packed are plain files that are not reached through links.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 5)))

# Python's own files are read before this becomes the user, who may be kept out of where they are.
from hal.daemons.agent.keeper.file_service.tree_filler import become
from hal.runtime.path_globs import matches, parts_of

READ_BYTES = 1 << 20
MAX_WALKED = 1_000_000
"""Entries that are looked at for what is collected."""
MAX_DEPTH = 256
"""Directories above a file that is collected."""
KEPT_MODE = 0o777


def pack(source: BinaryIO, out: BinaryIO) -> None:
    """Pack the files that match.

    Raises:
        OSError: the directory cannot be read.
        ValueError: they are too many or too long; says so.
    """
    order = json.loads(source.readline())
    # A pattern that names a directory takes all that is below it.
    patterns = [parts_of(one) for text in order["patterns"] for one in (text.rstrip("/"), f"{text.rstrip('/')}/**")]
    found: list[tuple[str, os.stat_result]] = []
    size = 0
    for path, info in walk():
        names = path.split("/")
        if not any(matches(parts, names) for parts in patterns):
            continue
        found.append((path, info))
        size += info.st_size
        if len(found) > order["files"]:
            raise ValueError(f"more than {order['files']:,} files match, which is the most that is collected")
    if size > order["size_bytes"]:
        raise ValueError(
            f"the files that match have {size:,} bytes; at most {order['size_bytes']:,} are collected here and now"
        )
    out.write(json.dumps({"files": len(found)}).encode() + b"\n")
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=READ_BYTES) as archive:
        for path, info in found:
            add(archive, path, info)


def add(archive: tarfile.TarFile, path: str, seen: os.stat_result) -> None:
    """Add a file as it was seen."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=READ_BYTES) as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or (info.st_dev, info.st_ino) != (seen.st_dev, seen.st_ino):
            raise OSError(errno.ESTALE, "the file was replaced while it was collected", path)
        entry = archive.tarinfo(path)
        entry.size = seen.st_size
        entry.mode = stat.S_IMODE(info.st_mode) & KEPT_MODE
        entry.mtime = int(info.st_mtime)
        archive.addfile(entry, file)


def walk() -> Iterator[tuple[str, os.stat_result]]:
    """Give all plain files, by name; links are not followed."""
    stack = [""]
    walked = 0
    while stack:
        above = stack.pop()
        try:
            with os.scandir(above or ".") as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except PermissionError:
            continue  # the job has closed it to its own user
        below = []
        for entry in listed:
            walked += 1
            if walked > MAX_WALKED:
                raise ValueError(f"the directory has more than {MAX_WALKED:,} entries")
            path = f"{above}/{entry.name}" if above else entry.name
            if entry.is_dir(follow_symlinks=False):
                if path.count("/") < MAX_DEPTH:
                    below.append(path)
            elif entry.is_file(follow_symlinks=False) and printable(path):
                yield path, entry.stat(follow_symlinks=False)
        stack += reversed(below)


def printable(path: str) -> bool:
    """Whether a path is text; others cannot be in an archive that everybody can read."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def main(argv: list[str]) -> int:
    """Do it."""
    become(int(argv[1]), int(argv[2]))
    out = sys.stdout.buffer
    try:
        pack(sys.stdin.buffer, out)
    except (OSError, ValueError) as error:
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        out.write(json.dumps({"error": text}).encode() + b"\n")
        out.flush()
        return 1
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
