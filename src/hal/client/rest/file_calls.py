"""The calls of REST /v1 about files of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request

LENGTH_BYTES = 4
_BYTES = {"Content-Type": "application/octet-stream"}


class BundleOffer(View, frozen=True, kw_only=True):
    """What the controller has of a bundle."""

    id: str
    missing: tuple[int, ...] = ()
    """Positions of segments to be sent; empty: it is kept."""
    size_bytes: int = 0
    files: int = 0


class BundleInfo(View, frozen=True, kw_only=True):
    """A bundle of the caller."""

    id: str
    size_bytes: int = 0
    files: int = 0
    used_ms: int = 0


class BundlesInfo(View, frozen=True, kw_only=True):
    """The caller's bundles, last used first, and how large one may be."""

    bundles: tuple[BundleInfo, ...] = ()
    most_bytes: int = 0
    most_files: int = 0


class CollectedInfo(View, frozen=True, kw_only=True):
    """What was collected of one attempt on one of its nodes."""

    task: int = 0
    attempt: int = 1
    rank: int = 0
    files: int = 0
    size_bytes: int = 0
    """Of the archive."""
    at_ms: int = 0


def offer_bundle(manifest: bytes) -> Call[BundleOffer]:
    """POST /v1/bundles"""
    return Call(Request("POST", "/v1/bundles", body=manifest, headers=_BYTES), reader(BundleOffer))


def upload_segments(segments: Sequence[bytes | bytearray]) -> Call[dict[str, int]]:
    """POST /v1/bundles/segments"""
    body = b"".join(part for data in segments for part in (len(data).to_bytes(LENGTH_BYTES, "little"), data))
    return Call(Request("POST", "/v1/bundles/segments", body=body, headers=_BYTES), reader(dict[str, int]))


def bundles() -> Call[BundlesInfo]:
    """GET /v1/bundles"""
    return Call(get("/v1/bundles"), reader(BundlesInfo))


def collected(job_id: str) -> Call[tuple[CollectedInfo, ...]]:
    """GET /v1/jobs/{id}/files"""
    return Call(get(f"/v1/jobs/{quote(job_id, safe='')}/files"), list_reader("collected", CollectedInfo))


def archive(job_id: str, one: CollectedInfo) -> Request:
    """GET /v1/jobs/{id}/files/archive: a tar file."""
    query = {"task": str(one.task), "attempt": str(one.attempt), "rank": str(one.rank)}
    headers = {"Accept": "application/x-tar, application/problem+json"}
    return Request("GET", f"/v1/jobs/{quote(job_id, safe='')}/files/archive", query=query, headers=headers)
