"""Directories of steps on the disk: made, filled and packed by workers that are their user, moved and removed here.

Their names are in `places`. Where steps run as their users, BASE and PRIVATE are root's and a step's directory is its
user's, mode 0700. Nobody but root gets to PRIVATE, so nothing in it changes before a step has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import astuple

from hal.core.model import ConflictError, StepId
from hal.daemons.agent.keeper.file_service import tree_filler, tree_packer
from hal.daemons.agent.keeper.file_service.bundle_cache import Bundle
from hal.daemons.agent.keeper.file_service.places import gone_name, private_directory
from hal.daemons.agent.secret_files import Account
from hal.runtime.privacy import make_private

SHARED_BASE_MODE: Final = 0o711
MAX_LINE_BYTES: Final = 1 << 16
READ_BYTES: Final = 1 << 20
MAX_WORKERS: Final = 4
"""Workers at once whose data is here; more wait."""
MAX_FED: Final = 8
"""Workers at once that wait for what comes from the controller; more wait."""
MAX_ERROR_CHARS: Final = 1_000
"""Of what a worker says about its failure."""
REMOVED_AFTER_S: Final = 0.1
"""The end of the step is reported first."""
SILENT: Final = "the process that handles the files has ended without a word"
LAST_WORDS_S: Final = 10.0
"""How long a worker may take to end after its last byte."""


class Packed:
    """What a worker packs: how many files, and the archive as it comes."""

    def __init__(self, files: int, worker: Process) -> None:
        self.files = files
        self._worker = worker

    async def pieces(self) -> AsyncIterator[bytes]:
        """The archive.

        Raises:
            ConflictError: it could not be completed.
        """
        assert self._worker.stdout is not None
        while data := await self._worker.stdout.read(READ_BYTES):
            yield data
        if await self._worker.wait():
            raise ConflictError("a file changed or could not be read while it was collected")


class Trees:
    """Of one node."""

    def __init__(self, base: Path, kept: Path, *, shared: bool, new_id: Callable[[], str]) -> None:
        """
        Args:
            shared: each step runs as its own user.
        """
        self.base = base
        self._private = private_directory(base)
        self._kept = kept
        self._shared = shared
        self._new_id = new_id
        self._room = asyncio.Semaphore(MAX_WORKERS)
        self._room_fed = asyncio.Semaphore(MAX_FED)
        self._removing: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Create the directories; what is left in the private one is removed some time later.

        Raises:
            OSError: something else is in their place.
        """
        make_private(self._kept)
        make_private(self._private)
        make_private(self.base)
        if self._shared:
            self.base.chmod(SHARED_BASE_MODE)
        for name in os.listdir(self._private):
            self.remove(self._private / name)

    def directory_of(self, step: StepId) -> Path:
        """Where the step's directory is, or will be."""
        return self.base / str(step)

    async def make(self, account: Account | None, bundle: Bundle | None) -> Path:
        """Create a directory for that user, in private, and fill it.

        Args:
            account: None: this process's.
            bundle: None: it is empty.
        Raises:
            OSError: it cannot be created.
            ConflictError: it cannot be filled; says why.
            HALError: as the contents of the bundle.
        """
        path = self._private / self._new_id()
        path.mkdir(mode=0o700)
        try:
            if account is not None:
                os.chown(path, account.uid, account.gid)
            if bundle is not None:
                await self._fill(path, account, bundle)
        except BaseException:
            self._remove_later(path)
            raise
        return path

    def hand_over(self, tree: Path, step: StepId) -> None:
        """Give it to a step, unless that was given another one meanwhile.

        Raises:
            FileNotFoundError: it is not there any more.
        """
        if self.directory_of(step).exists():
            self.remove(tree)
        else:
            tree.rename(self.directory_of(step))

    def keep_ready(self, tree: Path, name: str) -> Path:
        """Let the agent take it, whole as it is, by that name; returns where it is."""
        ready = self._private / name
        self.remove(ready)  # none is there, unless a step was given another one meanwhile
        tree.rename(ready)
        return ready

    def is_ready(self, name: str) -> bool:
        """Whether a copy of that name is ready."""
        return os.path.lexists(self._private / name)

    def remove_ended(self, name: str) -> None:
        """Remove the directory of a step that is over, wherever the agent has put it."""
        self.remove(self.base / name)
        self.remove(self._private / gone_name(name))

    def remove(self, path: Path) -> None:
        """Take it away at once; it is removed some time later. Harmless if it is not there.

        It gets another name first: by its own, the agent might give it to a step while it is removed.
        """
        trash = self._private / self._new_id()
        _reopen(path)
        try:
            path.rename(trash)
        except FileNotFoundError:
            return
        self._remove_later(trash)

    @contextlib.asynccontextmanager
    async def packed(
        self, step: StepId, account: Account | None, patterns: Sequence[str], *, files: int, size_bytes: int
    ) -> AsyncIterator[Packed]:
        """Pack what matches, at most so much.

        Raises:
            ConflictError: it is more, or the directory cannot be read.
        """
        order = {"patterns": list(patterns), "files": files, "size_bytes": size_bytes}
        _reopen(self.directory_of(step))
        async with self._room, _worker(tree_packer.__file__, self.directory_of(step), account) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(json.dumps(order).encode() + b"\n")
            worker.stdin.close()
            head = _answer(await worker.stdout.readline())
            yield Packed(head["files"], worker)

    async def close(self) -> None:
        """Wait for what is being removed."""
        if self._removing:
            await asyncio.wait(self._removing)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _fill(self, path: Path, account: Account | None, bundle: Bundle) -> None:
        room = self._room if bundle.here else self._room_fed
        async with room, _worker(tree_filler.__file__, path, account) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it says why it has ended
                worker.stdin.write(tree_filler.encode_order(map(astuple, bundle.manifest.entries)))
                async for data in bundle.contents:
                    worker.stdin.write(data)
                    await worker.stdin.drain()
                worker.stdin.close()
            said = await worker.stdout.readline()
            if said != tree_filler.DONE:
                raise ConflictError(said.decode(errors="replace").strip()[:MAX_ERROR_CHARS] or SILENT)

    def _remove_later(self, path: Path) -> None:
        task = asyncio.ensure_future(self._remove(path))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, path: Path) -> None:
        """By the system's own program: a job may have made trees of any depth, and links to anywhere."""
        await asyncio.sleep(REMOVED_AFTER_S)
        async with self._room:
            if os.geteuid():  # a user may have closed directories of their own to themselves
                await _run("chmod", "-R", "u+rwX", "--", str(path))
            await _run("rm", "-rf", "--one-file-system", "--", str(path))


def _reopen(path: Path) -> None:
    """A user whose HAL this is may have closed a step's directory to themselves: it could be neither read nor moved."""
    if os.geteuid():
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode) and stat.S_IMODE(mode) & 0o700 != 0o700:
                path.chmod(0o700)


@contextlib.asynccontextmanager
async def _worker(script: str, path: Path, account: Account | None) -> AsyncIterator[Process]:
    who = (0, 0) if account is None else account
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", script, str(who[0]), str(who[1])),
        stdin=PIPE,
        stdout=PIPE,
        cwd=path,
        env={"LC_ALL": "C.UTF-8"},
        limit=READ_BYTES,
    )
    try:
        yield worker
        async with asyncio.timeout(LAST_WORDS_S):
            await worker.wait()
    except TimeoutError:
        raise ConflictError("the files were not completed in time") from None
    finally:
        if worker.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()


async def _run(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()


def _answer(line: bytes) -> dict[str, Any]:
    """What a packer says first.

    Raises:
        ConflictError: the worker has failed; as it says.
    """
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        raise ConflictError(SILENT) from None
    if "error" in said:
        raise ConflictError(str(said["error"])[:MAX_ERROR_CHARS])
    return said
