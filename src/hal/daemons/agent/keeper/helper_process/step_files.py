"""The files that a helper creates for a step: its outputs and its script, in the directory of its job.

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
"""Directories of jobs' files that are held open."""


class StepFiles:
    """The directories of jobs' files, held open: each stays the same one, whatever a job puts in its place later."""

    def __init__(self) -> None:
        self._directories: dict[str, int] = {}
        """Descriptors by path."""

    def open_outputs(self, prefix: str, opened: list[int]) -> str:
        """Open stdout and stderr for appending.

        Args:
            opened: gets their descriptors, which the caller closes; fewer than two if the disk is full.
        Returns: why an output is not kept, or "".
        Raises:
            CannotSpawnError: something other than a file of HAL is in their place.
        """
        try:
            for name in ("stdout", "stderr"):
                opened.append(self._create(prefix, name, os.O_WRONLY | os.O_APPEND, 0o600))
        except NotRegularError as error:
            raise CannotSpawnError(126, f"its output cannot be created: {describe_obstacle(error)}") from None
        except OSError as error:
            return f"its output was not kept: {prefix}: {error.strerror}"
        return ""

    def write_script(self, prefix: str, script: str) -> str:
        """Write the script of a step; returns its path.

        Raises:
            CannotSpawnError: something other than a file of HAL is in its place.
            CannotSpawnHereError: the disk failed.
        """
        path = f"{prefix}.script"
        try:
            fd = self._create(prefix, "script", os.O_WRONLY, 0o700)
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

    def _create(self, prefix: str, ending: str, flags: int, mode: int) -> int:
        """Create a file of a step; the first step of a job here creates its directory."""
        where, _, name = prefix.rpartition("/")
        try:
            return create_regular(f"{name}.{ending}", flags, mode, dir_fd=self._directory(where))
        except FileNotFoundError:  # the directory was deleted after it was opened
            fd = self._directories.pop(where, None)
            if fd is not None:
                os.close(fd)
            return create_regular(f"{name}.{ending}", flags, mode, dir_fd=self._directory(where))

    def _directory(self, path: str) -> int:
        fd = self._directories.get(path)
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
        if len(self._directories) >= MAX_DIRECTORY_FDS:
            os.close(self._directories.pop(next(iter(self._directories))))
        self._directories[path] = fd
        return fd
