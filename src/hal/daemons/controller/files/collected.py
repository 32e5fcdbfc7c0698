"""What was collected of steps: a tar archive for each, until its job is removed.

    HAL_HOME/files/collected/JOB@OWNER/TASK.ATTEMPT.RANK.FILES.tar

OWNER is a digest of the user's name, so that what each of them has can be counted. An archive is written elsewhere and
moved to its place, so it is whole or not there. How much there is, is counted once, when it is first asked for.

Bounds: bytes and files of one archive, bytes of one user's and of all (`[files]` of hal.toml), archives that are
written at once. Nothing goes to make room: what was collected was asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from functools import partial
from typing import Final, TypeVar

from hal.core.model import ConflictError, NotFoundError, OverloadedError, StepId, StoreError
from hal.core.model.bundle import BundleLimits
from hal.daemons.controller.files.archive_files import Archive, ArchiveFiles
from hal.daemons.controller.files.settings import FilesSection
from hal.runtime.interface import Lane, Runtime

T = TypeVar("T")

MAX_WRITTEN: Final = 64
"""Archives that are written at once."""
TAR_BYTES: Final = 2 << 10
"""What a file takes in an archive beside its bytes, at most."""
MAX_REMOVED: Final = 1_000
"""Jobs whose archives one call on the lane removes."""
OWNER_DIGITS: Final = 16


class Writing:
    """An archive that is being written; made by `Collected.begin`."""

    def __init__(self, collected: Collected, step: StepId, owner: str, name: str, limits: BundleLimits) -> None:
        self._collected = collected
        self._step = step
        self._owner = owner
        self._name = name
        self._written = 0
        self.limits = limits

    async def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            ConflictError: they are more than was allowed.
        """
        self._written += len(data)
        if self._written > self.limits.size_bytes + TAR_BYTES * (self.limits.files + 1):
            raise ConflictError("the archive is longer than was announced")
        await self._collected.append(self._name, data)

    async def finish(self, files: int) -> None:
        """It is complete."""
        await self._collected.finish(self._step, self._owner, self._name, files, self._written)

    async def abort(self) -> None:
        """Give it up; harmless if it is complete."""
        await self._collected.abort(self._name, self._step)


class Collected:
    """Of one controller."""

    def __init__(self, runtime: Runtime, section: FilesSection) -> None:
        self._runtime = runtime
        self._limits = section.collect_limits
        self._bounds = section.amount("collected"), section.amount("user_collected")
        self._path = runtime.paths.files / "collected"
        self._files: ArchiveFiles | None = None
        self._opening = asyncio.Lock()
        self._used: dict[str, int] = {}
        """Bytes by owner's digest."""
        self._jobs: dict[int, str] = {}
        """Owner's digest by job, of jobs that have archives."""
        self._writing: dict[str, str] = {}
        """Archives that are written, and whose they are."""
        self._steps: set[StepId] = set()
        """Whose archives are written."""

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def has(self, step: StepId) -> bool:
        """Whether the archive of that step is stored."""
        return any(
            (one.task, one.attempt, one.rank) == (step.task, step.attempt, step.rank) for one in await self.of(step.job)
        )

    async def begin(self, step: StepId, user: str) -> Writing:
        """Begin an archive.

        Raises:
            OverloadedError: there is no room.
        """
        await self._open()
        owner = _digest(user)
        if step in self._steps:
            raise OverloadedError(f"what was collected of step {step} is being stored", hint="it is tried again")
        if len(self._writing) >= MAX_WRITTEN:
            raise OverloadedError(f"{MAX_WRITTEN} archives are being stored", hint="it is tried again")
        all_bytes, user_bytes = self._bounds
        limits = self._limits
        # What is being written counts as if it became as long as it may.
        reserved = limits.size_bytes * len(self._writing)
        mine = limits.size_bytes * sum(whose == owner for whose in self._writing.values())
        room = min(all_bytes - sum(self._used.values()) - reserved, user_bytes - self._used.get(owner, 0) - mine)
        if room <= 0:
            raise OverloadedError(
                f"what was collected of jobs of user '{user}', or of all, fills its space",
                hint="remove old jobs (hal rm), or raise files.collected and files.user_collected in hal.toml",
            )
        name = f"{step.job}-{self._runtime.new_id()}"
        self._writing[name] = owner
        self._steps.add(step)
        return Writing(
            self, step, owner, name, BundleLimits(size_bytes=min(room, limits.size_bytes), files=limits.files)
        )

    async def append(self, name: str, data: bytes) -> None:
        """Add to an archive that is written."""
        files = await self._open()
        await self._blocking(partial(files.append, name, data))

    async def finish(self, step: StepId, owner: str, name: str, files: int, size_bytes: int) -> None:
        """Put a complete archive in its place."""
        disk = await self._open()
        await self._blocking(partial(disk.finish, name, step, owner, files))
        self._writing.pop(name, None)
        self._steps.discard(step)
        self._jobs[step.job] = owner
        self._used[owner] = self._used.get(owner, 0) + size_bytes

    async def abort(self, name: str, step: StepId) -> None:
        """Remove what was written."""
        if self._writing.pop(name, None) is not None:
            self._steps.discard(step)
            files = await self._open()
            await self._blocking(partial(files.abort, name))

    # ── users ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def of(self, job: int) -> list[Archive]:
        """The archives of a job, by task, attempt and rank."""
        if self._files is None and not self._path.exists():
            return []
        files = await self._open()
        owner = self._jobs.get(job)
        return [] if owner is None else await self._blocking(partial(files.of, job, owner))

    async def read(self, job: int, task: int, attempt: int, rank: int) -> tuple[Archive, AsyncIterator[bytes]]:
        """An archive, and its bytes as they are read.

        Raises:
            NotFoundError: there is none.
        """
        for one in await self.of(job):
            if (one.task, one.attempt, one.rank) == (task, attempt, rank):
                return one, self._pieces(job, self._jobs[job], one)
        raise NotFoundError(
            f"nothing was collected of rank {rank} of attempt {attempt} of task {job}.{task}",
            hint=f"hal fetch {job} --list",
        )

    async def _pieces(self, job: int, owner: str, archive: Archive) -> AsyncIterator[bytes]:
        files = await self._open()
        at = 0
        while at < archive.size_bytes:
            data = await self._blocking(partial(files.read, job, owner, archive, at))
            if not data:
                raise NotFoundError(f"the archive of task {job}.{archive.task} was removed meanwhile")
            at += len(data)
            yield data

    # ── removal ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def remove(self, jobs: Iterable[int]) -> None:
        """Remove what was collected of these jobs; harmless where there is nothing."""
        if self._files is None and not self._path.exists():
            return
        files = await self._open()
        due = [(job, self._jobs.pop(job)) for job in jobs if job in self._jobs]
        for at in range(0, len(due), MAX_REMOVED):
            for owner, freed in await self._blocking(partial(files.remove, due[at : at + MAX_REMOVED])):
                self._used[owner] = max(0, self._used.get(owner, 0) - freed)

    async def remove_attempt(self, job: int, task: int, attempt: int) -> None:
        """Remove what was collected of one attempt; harmless where there is nothing."""
        if self._files is None and not self._path.exists():
            return
        files = await self._open()
        if (owner := self._jobs.get(job)) is not None:
            freed = await self._blocking(partial(files.remove_attempt, job, owner, task, attempt))
            self._used[owner] = max(0, self._used.get(owner, 0) - freed)

    async def jobs(self) -> Collection[int]:
        """The jobs of which something is stored."""
        if self._files is None and not self._path.exists():
            return ()
        await self._open()
        return list(self._jobs)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _blocking(self, call: Callable[[], T]) -> T:
        try:
            return await self._runtime.run_blocking(call, Lane.FILES)
        except OSError as error:
            raise StoreError(
                f"{self._path}: {error.strerror or error}", hint="is the controller's disk full?"
            ) from error

    async def _open(self) -> ArchiveFiles:
        if self._files is None:
            async with self._opening:
                if self._files is None:
                    files = ArchiveFiles(self._path)
                    self._jobs, self._used = await self._blocking(files.count)
                    self._files = files
        return self._files


def _digest(user: str) -> str:
    return hashlib.sha256(user.encode()).hexdigest()[:OWNER_DIGITS]
