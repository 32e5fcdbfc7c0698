"""Bodies of submissions, read strictly: every mistake is a `SpecError` that names it."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from hal.core.model import HALError, JobSpec, SpecError, spec_from_plain
from hal.planes.tasks import MAX_JOBS_IN_SUBMISSION
from hal.rest.bodies import beside, body_as, plain_json
from hal.rest.body_entries import LARGE_BYTES, check_entries, too_many_entries

__all__ = ["beside", "body_as", "plain_json", "specs_of"]


class _ManyJobs(Struct, frozen=True, forbid_unknown_fields=True):
    jobs: list[Raw]


def specs_of(body: bytes) -> list[JobSpec]:
    """The specs in the body of a submission: one job, or `{"jobs": [...]}`.

    Equal texts give the same value, so many equal jobs cost little.
    """
    small = len(body) <= LARGE_BYTES or check_entries(body)
    try:
        many = msgspec.json.decode(body, type=_ManyJobs)
    except (msgspec.ValidationError, RecursionError):
        # Not a list of jobs: one job, or malformed, which is said below.
        if not small:
            raise too_many_entries() from None
        return [spec_from_plain(plain_json(body))]
    except msgspec.DecodeError as error:
        raise SpecError(f"the body is not JSON: {error}") from error
    if len(many.jobs) > MAX_JOBS_IN_SUBMISSION:
        raise SpecError(
            f"{len(many.jobs)} jobs in one request; at most {MAX_JOBS_IN_SUBMISSION} are allowed",
            hint="submit them in parts, or alike ones as one array",
        )
    known: dict[bytes, JobSpec] = {}
    specs: list[JobSpec] = []
    for position, raw in enumerate(many.jobs):
        text = bytes(raw)
        spec = known.get(text)
        if spec is None:
            try:
                spec = known[text] = spec_from_plain(plain_json(text))
            except HALError as error:
                place = f"job {position + 1} of {len(many.jobs)}: " if len(many.jobs) > 1 else ""
                raise SpecError(place + error.message, hint=error.hint) from error
        specs.append(spec)
    return specs
