"""The endpoints about files of jobs: bundles that are shipped, and what was collected."""

from __future__ import annotations

from typing import Final

from hal.core.model.bundle import MAX_MANIFEST_BYTES
from hal.daemons.controller.api.endpoints.endpoint import INT, JOB, Body, Endpoint, Param
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.parameters import MAX_TASK
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.files import (
    MAX_UPLOAD_BYTES,
    BundleOffer,
    BundlesList,
    CollectedList,
    Uploaded,
)
from hal.rest.answers import streamed_answer
from hal.rest.endpoint import BYTES
from hal.rest.errors import TooLargeError
from hal.rest.rights import OWNERS

TAR: Final = "application/x-tar"


async def offer_bundle(api: ControllerApi, call: Call) -> object:
    """What is missing of a bundle, or keep it."""
    _check_size(call.raw, MAX_MANIFEST_BYTES)
    found = await api.files.offer(call.visit.identity.user, call.raw)
    call.visit.targets.append(found.id)
    return found


async def upload_segments(api: ControllerApi, call: Call) -> object:
    """Store segments."""
    _check_size(call.raw, MAX_UPLOAD_BYTES)
    return await api.files.upload(call.visit.identity.user, call.raw)


async def list_bundles(api: ControllerApi, call: Call) -> object:
    """The caller's own."""
    return await api.files.bundles(call.visit.identity.user)


async def list_collected(api: ControllerApi, call: Call) -> object:
    """What was collected of a job."""
    await api.jobs.row(call.job)
    return await api.files.collected(call.job)


async def read_collected(api: ControllerApi, call: Call) -> object:
    """One archive."""
    params = call.params
    archive, content = await api.files.archive(
        call.job,
        params.integer("task", 0, low=0, high=MAX_TASK),
        params.integer("attempt", 1, low=1, high=MAX_TASK),
        params.integer("rank", 0, low=0, high=MAX_TASK),
    )
    return streamed_answer(call, content, TAR, {"Content-Length": str(archive.size_bytes)})


def _check_size(body: bytes, most: int) -> None:
    if len(body) > most:
        raise TooLargeError(f"the body has {len(body)} bytes; at most {most} are allowed", hint="send it in parts")


_BINARY: Final = {"type": "string", "format": "binary"}
FILES: Final = (
    Endpoint(
        method="POST",
        path="/v1/bundles",
        handler=offer_bundle,
        right=OWNERS,
        name="offerBundle",
        tag="files",
        summary="Offer a bundle of files: what is missing of it is answered; if nothing is, it is kept",
        text=(
            "The body is the bundle's manifest (docs/files.md), at most 4 MiB; its SHA-256 is the bundle's name. Only "
            "what the caller has sent counts: a name or a digest is no key to what others have."
        ),
        body=Body(schema=_BINARY, examples={}, media=BYTES),
        result=BundleOffer,
        problems=("400", "413", "503"),
        for_job_tokens=True,
        repeated=True,
    ),
    Endpoint(
        method="POST",
        path="/v1/bundles/segments",
        handler=upload_segments,
        right=OWNERS,
        name="uploadSegments",
        tag="files",
        summary="Send segments of a bundle that is then offered again",
        text=(
            "The body is a sequence of segments, each behind its length as 4 bytes little-endian: together at most "
            "4 MiB. Segments of a bundle that is never complete are removed."
        ),
        body=Body(schema=_BINARY, examples={}, media=BYTES),
        result=Uploaded,
        problems=("400", "413", "503"),
        for_job_tokens=True,
        repeated=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/bundles",
        handler=list_bundles,
        right=OWNERS,
        name="listBundles",
        tag="files",
        summary="List the caller's bundles, last used first, and how large one may be",
        result=BundlesList,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/files",
        handler=list_collected,
        right=OWNERS,
        name="listCollected",
        tag="files",
        summary="List what was collected of a job, by task, attempt and rank",
        params=(JOB,),
        result=CollectedList,
        problems=("404",),
        for_job_tokens=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}/files/archive",
        handler=read_collected,
        right=OWNERS,
        name="readCollected",
        tag="files",
        summary="Read what was collected of one attempt on one of its nodes, as a tar file",
        text="It has plain files only. Whoever extracts it checks the names nevertheless: a job has chosen them.",
        params=(
            JOB,
            Param(name="task", text="task number, from 0", schema={**INT, "default": 0}),
            Param(name="attempt", text="number of the attempt", schema={"type": "integer", "minimum": 1, "default": 1}),
            Param(name="rank", text="index of the node in a gang, from 0", schema={**INT, "default": 0}),
        ),
        media={TAR: {}},
        problems=("400", "404"),
        for_job_tokens=True,
    ),
)
