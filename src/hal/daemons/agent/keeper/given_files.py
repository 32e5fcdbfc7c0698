"""What a step needs that its user may not open: the files of its outputs, its script, its cgroups.

The directories of outputs, journals and cgroups stay root's. The keeper opens what is in them and passes descriptors to
the helper of the step's user (`helper_process.captures` describes how outputs get their names; a helper of the keeper's
own user does all of this itself). Output files belong to the user, so that a step may open `/dev/stdout`; no path leads
there. A script is in a directory through which everybody may pass and which nobody else may list, and is readable by
its user alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from hal.core.model import HALError, StepId
from hal.daemons.agent.keeper.helper_journal import step_of
from hal.daemons.agent.keeper.helper_link import Given
from hal.daemons.agent.keeper.helper_process.captures import Captures, Spare
from hal.daemons.agent.keeper.helper_process.step_files import Directories
from hal.daemons.agent.keeper.ports import Launch
from hal.daemons.agent.keeper.watch import Watcher
from hal.runtime.home import Home
from hal.runtime.regular_files import create_regular, open_directory

SCRIPT_MODE: Final = 0o500
PASSAGE_MODE: Final = 0o711

Note = Callable[[StepId, str], None]


class Scripts:
    """The scripts of the steps of all users of a node."""

    def __init__(self, home: Home, name: str) -> None:
        """Args:
        home: whose passage it is in: a directory through which everybody may pass.
        name: of the directory in it.
        """
        self._home = home
        self._name = name
        self._directory: Path | None = None
        self._there: set[str] = set()

    def steps_socket(self) -> str:
        """Return where a controller of the same home serves steps of users; '' if there can be none."""
        try:
            return str(self._home.steps_socket())
        except (HALError, OSError):
            return ""

    def sweep(self, keep: Collection[StepId]) -> None:
        """Delete those that earlier keepers left, except of these steps."""
        names = {str(step) for step in keep}
        if self._home.known_passage() is None:
            return
        try:
            directory = self._opened()
            found = os.listdir(directory)
        except OSError:
            return
        for name in found:
            if name in names:
                self._there.add(name)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(directory / name)

    def write(self, step: StepId, text: str, uid: int) -> str:
        """Write the script of a step, for that user; returns its path.

        Raises:
            OSError: the disk failed.
        """
        name = str(step)
        try:
            return self._write(self._opened(), name, text, uid)
        except FileNotFoundError:  # the directory was deleted
            self._directory = None
            return self._write(self._opened(), name, text, uid)

    def _write(self, directory: Path, name: str, text: str, uid: int) -> str:
        path = directory / name
        fd = create_regular(path, os.O_WRONLY)
        self._there.add(name)
        try:
            data = text.encode("utf-8", "surrogateescape")
            while data:
                data = data[os.write(fd, data) :]
            os.fchmod(fd, SCRIPT_MODE)
            os.fchown(fd, uid, -1)
        finally:
            os.close(fd)
        return str(path)

    def delete(self, step: StepId) -> None:
        """Delete the script of a step, if it has one."""
        if not self._there:
            return
        name = str(step)
        if name in self._there and self._directory is not None:
            self._there.discard(name)
            with contextlib.suppress(OSError):
                os.unlink(self._directory / name)

    def _opened(self) -> Path:
        """Raises:
        OSError: the directory cannot be created.
        """
        if self._directory is None:
            directory = self._home.passage() / self._name
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=PASSAGE_MODE)
            fd = open_directory(directory, flags=os.O_RDONLY)
            try:
                os.fchmod(fd, PASSAGE_MODE)
            finally:
                os.close(fd)
            self._directory = directory
        return self._directory


class GivenFiles:
    """What one helper of a user was given."""

    def __init__(self, stem: str, uid: int, scripts: Scripts, watcher: Watcher, note: Note) -> None:
        """Args:
        stem: of the helper's journal, which says whose each output is.
        note: told why an output could not be kept.
        """
        self._uid = uid
        self._scripts = scripts
        self._watcher = watcher
        self._note = note
        self._captures = Captures(stem, Directories(), uid)
        self._taken: dict[StepId, list[Spare]] = {}
        if self._captures.fd >= 0:
            watcher.watch(self._captures.fd, self._name_written)

    def open(self, launch: Launch, prefix: str, into: tuple[int, ...]) -> Given:
        """Open what a step needs.

        Args:
            prefix: beginning of the path of its outputs.
            into: descriptors for the moves into its cgroups.
        Raises:
            CannotSpawnError: something is in the place of its outputs.
            OSError: its script cannot be written.
        """
        step, template, streams = launch.step, launch.template, launch.streams
        script = self._scripts.write(step, template.script, self._uid) if template.script else ""
        if streams is not None and streams.stdout and streams.stderr:
            return Given((), script, (), into)
        opened: list[int] = []
        taken, problem = self._captures.open(str(step), prefix, opened)
        if problem:
            self._note(step, problem)
        self._taken[step] = taken
        return Given(tuple(spare.number for spare in taken), script, tuple(opened), into)

    def ended(self, step: StepId, *, left: bool) -> None:
        """Handle the end of a step, or that it has not begun.

        Args:
            left: processes of it may still write.
        """
        taken = self._taken.pop(step, None)
        problem = self._captures.ended(taken, left=left) if taken else ""
        if problem:
            self._note(step, problem)

    def close(self) -> None:
        """Its helper is over: outputs get their names, and what was not used is deleted."""
        for step in list(self._taken):
            self.ended(step, left=True)
        self._captures.close()
        if self._captures.fd >= 0:
            self._watcher.unwatch(self._captures.fd)
            os.close(self._captures.fd)

    def _name_written(self) -> None:
        for key, problem in self._captures.name_written():
            self._note(step_of(key), problem)
