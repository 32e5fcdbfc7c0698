"""The directories in which a helper creates files for steps, and their scripts.

`prefix` is the path of a step's files without their endings.
"""

from __future__ import annotations

import contextlib
import os

from hal.daemons.agent.keeper.helper_process.spawn_failures import (
    CannotSpawnError,
    CannotSpawnHereError,
    describe_obstacle,
)
from hal.runtime.regular_files import NotRegularError, create_regular, open_directory

MAX_DIRECTORY_FDS = 64
"""Directories that are held open."""


class Directories:
    """Directories below that of all steps, held open: each stays the same, whatever a job puts in its place later.

    A descriptor is good until as many other directories were asked for as are held open.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        """Descriptors by path; what was asked for last comes last."""

    def open(self, path: str) -> int:
        """Return a descriptor of a directory, which is created if it does not exist.

        Raises:
            NotRegularError: something else is there, or in the place of the directory of all steps.
            OSError: as mkdir(2).
        """
        fd = self._held(path)
        if fd is not None:
            return fd
        root, name = os.path.split(path)
        try:
            top = open_directory(root)
        except FileNotFoundError:
            os.makedirs(root, 0o700, exist_ok=True)
            top = open_directory(root)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=top)
            fd = open_directory(name, dir_fd=top)
        finally:
            os.close(top)
        return self._keep(path, fd)

    def existing(self, path: str) -> int:
        """As `open`, without creating it: -1 if it does not exist."""
        fd = self._held(path)
        if fd is not None:
            return fd
        root, name = os.path.split(path)
        try:
            top = open_directory(root)
        except FileNotFoundError:
            return -1
        try:
            return self._keep(path, open_directory(name, dir_fd=top))
        except FileNotFoundError:
            return -1
        finally:
            os.close(top)

    def forget(self, path: str) -> None:
        """Open it anew next time: it was deleted."""
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def _held(self, path: str) -> int | None:
        fd = self._open.pop(path, None)
        if fd is not None:
            self._open[path] = fd
        return fd

    def _keep(self, path: str, fd: int) -> int:
        if len(self._open) >= MAX_DIRECTORY_FDS:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[path] = fd
        return fd


def write_script(directories: Directories, prefix: str, script: str) -> str:
    """Write the script of a step; returns its path.

    Raises:
        CannotSpawnError: something other than a file of HAL is in its place.
        CannotSpawnHereError: the disk failed.
    """
    path = f"{prefix}.script"
    where, _, name = path.rpartition("/")
    try:
        try:
            fd = create_regular(name, os.O_WRONLY, 0o700, dir_fd=directories.open(where))
        except FileNotFoundError:  # the directory was deleted after it was opened
            directories.forget(where)
            fd = create_regular(name, os.O_WRONLY, 0o700, dir_fd=directories.open(where))
        try:
            data = script.encode("utf-8", "surrogateescape")
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
    except NotRegularError as error:
        raise CannotSpawnError(126, f"its script cannot be written: {describe_obstacle(error)}") from None
    except OSError as error:
        raise CannotSpawnHereError(f"the script could not be written to {path}: {error.strerror}") from None
    return path
