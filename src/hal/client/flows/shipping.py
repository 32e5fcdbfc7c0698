"""Submitting jobs that ship directories, and fetching what was collected: steps for both clients.

A directory that has not changed since the last time is named, and sent only if the controller no longer has it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Final, NamedTuple

from msgspec.structs import replace

from hal.client.flows.steps import Emit, Flow, Listen, Read, Steps, Work
from hal.client.progress_line import ProgressLine
from hal.client.rest import calls, file_calls
from hal.client.rest.calls import Submitted
from hal.client.rest.file_calls import CollectedInfo
from hal.client.shipping.archive import extract
from hal.client.shipping.directory import Listing, list_directory
from hal.client.shipping.pack import Pack, pack, remembered
from hal.client.transport.exchange import Request
from hal.core.model import JobSpec, OverloadedError
from hal.core.model.bundle import BundleLimits, is_bundle_name
from hal.core.model.errors import BundleMissingError, UnreachableError

UPLOAD_BYTES: Final = (4 << 20) - (64 << 10)
"""Of segments in one request."""
LARGE_BYTES: Final = 32 << 20
"""Before a longer directory is read, the controller is asked whether it may be shipped."""
MANY_FILES: Final = 2_000
EXTRACTED_AT_ONCE: Final = 32
"""Files that are created before they are given to the caller."""
WRITTEN_AT_ONCE: Final = 1 << 20
"""Bytes of an archive that are written to the disk together."""
ROUNDS: Final = 3
"""How often a bundle is offered: what was sent may have to make room before the rest has come."""


def ships(specs: Sequence[JobSpec]) -> bool:
    """Whether one of these jobs names a directory."""
    return any(spec.ship and not is_bundle_name(spec.ship) for spec in specs)


def submitted(
    specs: Sequence[JobSpec], *, key: str | None, dry_run: bool = False, progress: bool = False
) -> Steps[Submitted]:
    """Submit jobs that ship directories; these are sent first, as far as the controller does not have them.

    Args:
        dry_run: send nothing; directories are looked at.
        progress: show how far it has come.
    Raises:
        NotFoundError: there is no such directory.
        SpecError: it cannot be shipped.
        OverloadedError: the controller has no room for it.
    """
    listings = {spec.ship: None for spec in specs if spec.ship and not is_bundle_name(spec.ship)}
    names: dict[str, str] = {}
    found: dict[str, Listing] = {}
    for place in listings:
        found[place] = listing = yield Work(partial(list_directory, place))
        names[place] = "" if dry_run else (yield Work(partial(remembered, listing)))[0]
        if dry_run or not names[place]:
            yield from _check_size(listing)
    if dry_run:
        answer: Submitted = yield calls.submit(_named(specs, names), dry_run=True)
        return answer
    for place, name in names.items():
        if not name:
            names[place] = yield from _sent(found[place], progress=progress)
    key = key or calls.fresh_key()
    try:
        answer = yield calls.submit(_named(specs, names), key=key)
        return answer
    except BundleMissingError:
        for place, listing in found.items():
            names[place] = yield from _sent(listing, progress=progress)
    answer = yield calls.submit(_named(specs, names), key=key)
    return answer


def _named(specs: Sequence[JobSpec], names: dict[str, str]) -> list[JobSpec]:
    return [replace(spec, ship=names[spec.ship]) if spec.ship in names else spec for spec in specs]


def _check_size(listing: Listing) -> Steps[None]:
    size_bytes, files = listing.size_bytes, len(listing.entries)
    if size_bytes > LARGE_BYTES or files > MANY_FILES:
        allowed = yield file_calls.bundles()
        limits = BundleLimits(size_bytes=allowed.most_bytes, files=allowed.most_files)
        if refusal := limits.refusal(size_bytes, files):
            raise refusal


def _sent(listing: Listing, *, progress: bool) -> Steps[str]:
    """Send what the controller does not have; returns the bundle's name."""
    made: Pack = yield Work(lambda: pack(listing, remembered(listing)[1]))
    with ProgressLine(shown=progress) as line:
        for _ in range(ROUNDS):
            offer = yield file_calls.offer_bundle(made.manifest)
            if not offer.missing:
                return made.name
            yield from _upload(made, offer.missing, line)
    raise OverloadedError(
        f"the controller keeps nothing of {listing.top}: its space for bundles is full",
        hint="submit again later, or ask for a larger files.bundles in its hal.toml",
    )


def _upload(made: Pack, missing: Sequence[int], line: ProgressLine) -> Steps[None]:
    wanted = [position for position in missing if position < len(made.segments)]
    total = sum(made.segments[position][0].size for position in wanted)
    sent = 0
    for some in _in_requests(made, wanted):
        if sent:
            line.show(f"shipping {made.top}: {sent >> 20} of {total >> 20} MiB")
        segments = yield Work(partial(_read, made, some))
        yield file_calls.upload_segments(segments)
        sent += sum(map(len, segments))


def _in_requests(made: Pack, positions: Sequence[int]) -> Iterator[Sequence[int]]:
    """Positions of segments, as many as one request has."""
    some: list[int] = []
    size = 0
    for position in positions:
        length = made.segments[position][0].size
        if some and size + length > UPLOAD_BYTES:
            yield some
            some, size = [], 0
        some.append(position)
        size += length
    if some:
        yield some


def _read(made: Pack, positions: Sequence[int]) -> list[bytearray]:
    return [made.read(position) for position in positions]


# ── fetch ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Fetched(NamedTuple):
    """A file that was fetched."""

    path: Path
    task: int
    rank: int


def latest(found: Sequence[CollectedInfo], tasks: Collection[int] | None) -> list[CollectedInfo]:
    """What was collected of the latest attempt of each task, of these only."""
    newest: dict[int, int] = {}
    for one in found:
        newest[one.task] = max(one.attempt, newest.get(one.task, 0))
    return [one for one in found if one.attempt == newest[one.task] and (tasks is None or one.task in tasks)]


def fetched(
    job_id: str, wanted: Sequence[CollectedInfo], to: Path, *, tasks: int, nodes: int, force: bool
) -> Flow[Fetched]:
    """Fetch archives, and create their files; gives each file.

    Args:
        tasks, nodes: of the job: more than one have directories of their own, `TASK` and `rank-RANK`.
        force: replace files that are there.
    Raises:
        ConflictError: a file is there already; those before it were created.
        NotFoundError: it was removed.
    """
    for one in wanted:
        place = to / str(one.task) if tasks > 1 else to
        place = place / f"rank-{one.rank}" if nodes > 1 else place
        with tempfile.TemporaryFile() as file:
            yield from _download(file_calls.archive(job_id, one), file)
            size = file.tell()
            if size != one.size_bytes:
                raise UnreachableError(f"the archive of task {job_id}.{one.task} broke off", hint="fetch again")
            file.seek(0)
            files = extract(file, place, replace=force)
            while paths := (yield Work(partial(_next, files))):
                for path in paths:
                    yield Emit(Fetched(path, one.task, one.rank))


def _next(files: Iterator[Path]) -> list[Path]:
    return list(islice(files, EXTRACTED_AT_ONCE))


def _download(request: Request, file: IO[bytes]) -> Flow[Fetched]:
    yield Listen(request)
    kept = bytearray()
    while data := (yield Read()):
        kept += data
        if len(kept) >= WRITTEN_AT_ONCE:
            yield Work(partial(file.write, bytes(kept)))
            kept.clear()
    yield Work(partial(file.write, kept))
