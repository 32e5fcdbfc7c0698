"""Files of jobs, as people ask for them: shipping bundles, what jobs name, what was collected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from hal.core.model import DeniedError, HALError, JobSpec, SpecError
from hal.core.model.bundle import SEGMENT_BYTES, is_bundle_name
from hal.core.model.errors import BundleMissingError, shown
from hal.daemons.controller.files.archive_files import Archive
from hal.daemons.controller.files.bundles import Offer
from hal.daemons.controller.service.jobs.records import batched, rows_of
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Pace, Submitter
from hal.store import Removed

MAX_UPLOAD_BYTES: Final = 4 << 20
"""Of segments in one request, with their lengths."""
LENGTH_BYTES: Final = 4
KEEP_EVERY_MS: Final = 600_000
"""How often what is not needed any more is removed."""
MAX_LISTED: Final = 10_000
"""Bundles, and archives of a job, that are listed."""


class BundleOffer(Struct, frozen=True, kw_only=True):
    """What the controller has of a bundle."""

    id: str
    missing: list[int]
    """Positions in the manifest of segments that must be sent before the bundle is offered again. Empty: it is complete
    and kept."""
    size_bytes: int
    files: int


class Uploaded(Struct, frozen=True, kw_only=True):
    """What was stored of a request."""

    segments: int


class BundleView(Struct, frozen=True, kw_only=True):
    """A bundle of the caller."""

    id: str
    size_bytes: int
    files: int
    used_ms: int
    """When a job named it last, or a node read it."""


class BundlesList(Struct, frozen=True, kw_only=True):
    """The caller's bundles, last used first, and how large one may be."""

    bundles: list[BundleView]
    most_bytes: int
    most_files: int


class CollectedView(Struct, frozen=True, kw_only=True):
    """What was collected of one attempt on one of its nodes."""

    task: int
    attempt: int
    rank: int
    """Index of the node in a gang."""
    files: int
    size_bytes: int
    """Of the archive."""
    at_ms: int


class CollectedList(Struct, frozen=True, kw_only=True):
    """What was collected of a job, by task, attempt and rank."""

    collected: list[CollectedView]


class Files:
    """Of one controller."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # ── ship ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def offer(self, owner: str, manifest: bytes) -> BundleOffer:
        """What is missing of a bundle; if nothing is, it is kept for its owner.

        Raises: as `Bundles.offer`.
        """
        found: Offer = await self._parts.bundles.offer(owner, manifest)
        return BundleOffer(id=found.id, missing=list(found.missing), size_bytes=found.size_bytes, files=found.files)

    async def upload(self, owner: str, body: bytes) -> Uploaded:
        """Store segments: each behind its length, as 4 bytes little-endian.

        Raises:
            SpecError: the body is something else.
            OverloadedError: there is no room, or too many do this at once.
        """
        segments: list[memoryview] = []
        whole, at = memoryview(body), 0
        while at < len(body):
            begin = at + LENGTH_BYTES
            at = begin + int.from_bytes(body[at:begin], "little")
            if begin > len(body) or at > len(body) or not begin < at <= begin + SEGMENT_BYTES:
                raise SpecError("the body is not a sequence of segments, each behind its length")
            segments.append(whole[begin:at])
        return Uploaded(segments=await self._parts.bundles.upload(owner, segments))

    async def bundles(self, owner: str) -> BundlesList:
        """Those of one user."""
        rows = await self._parts.bundles.of(owner)
        views = [
            BundleView(id=row.id, size_bytes=row.size_bytes, files=row.files, used_ms=row.used_ms)
            for row in rows[:MAX_LISTED]
        ]
        limits = self._parts.bundles.limits
        return BundlesList(bundles=views, most_bytes=limits.size_bytes, most_files=limits.files)

    async def check(self, specs: Sequence[JobSpec], by: Submitter) -> None:
        """Check what jobs name that are to be submitted.

        Raises:
            SpecError: that is no bundle.
            BundleMissingError: its user has not sent it.
            DeniedError: it is submitted for somebody else.
        """
        pace, seen = Pace(), set[str]()
        for spec in specs:
            if spec.ship and spec.user and spec.user != by.user:
                raise DeniedError(
                    f"ship: only '{spec.user}' submits jobs with files of '{spec.user}'",
                    hint="leave ship out, or the other user's name",
                )
            if spec.ship and spec.ship not in seen:
                seen.add(spec.ship)
                await self._check_bundle(spec.ship, by)
            if pace.over():
                await self._parts.runtime.sleep(0)

    async def _check_bundle(self, name: str, by: Submitter) -> None:
        if not is_bundle_name(name):
            raise SpecError(
                f"ship: '{shown(name)}' is not a bundle",
                hint="over REST, send the directory first: POST /v1/bundles; hal and the Python client do",
            )
        if await self._parts.bundles.use(by.user, name) is None:
            raise BundleMissingError(
                f"ship: user '{by.user}' has no bundle {name} here", hint="send it again: POST /v1/bundles"
            )

    # ── collect ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def collected(self, job: int) -> CollectedList:
        """What was collected of a job."""
        found = await self._parts.collected.of(job)
        views = [CollectedView(**one._asdict()) for one in found[:MAX_LISTED]]
        return CollectedList(collected=views)

    async def archive(self, job: int, task: int, attempt: int, rank: int) -> tuple[Archive, AsyncIterator[bytes]]:
        """An archive, and its bytes as they are read.

        Raises:
            NotFoundError: there is none.
        """
        return await self._parts.collected.read(job, task, attempt, rank)

    # ── keep ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def keep(self) -> None:
        """Remove from time to time what no job needs any more; until cancelled."""
        while True:
            try:
                await self._parts.bundles.expire()
                await self.forget_removed()
            except HALError as error:
                self._parts.runtime.log.warning("files of jobs were not looked through", reason=str(error))
            await self._parts.runtime.sleep(KEEP_EVERY_MS)

    async def forget_removed(self) -> None:
        """Remove what was collected of jobs that are gone: a controller may have died before it did."""
        for some in batched(sorted(await self._parts.collected.jobs())):
            rows = await self._parts.committer.read(partial(rows_of, jobs=some))
            there = {row.id for row in rows if row is not None and row.removed == Removed.NOTHING}
            await self._parts.collected.remove(job for job in some if job not in there)
