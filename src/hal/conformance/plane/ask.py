"""Ask: what a program that asks what waits and what is reserved may rely on; see docs/rest.md.

`python -m hal.conformance.plane.ask URL` checks a running controller, with the operator's token in $HAL_TOKEN. It
offers machines with a resource that no node has, so that jobs which ask for it wait; both are removed again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hal.conformance.answers import NonConformance
from hal.conformance.plane.command_line import checks_parser, report, rest_at
from hal.conformance.plane.rest import Rest

OFFER: Final = "hal-conformance-ask"
PATH: Final = f"/v1/offers/{OFFER}"
RARE: Final = "hal-conformance-ask"
"""A resource that no node has."""
WITHIN_S: Final = 60.0
"""Long enough for a machine that is busy; what has not happened then is believed never to happen."""
REQUEST: Final = {"cpu": 1, RARE: 2}


def check(rest: Rest, stranger: Rest | None = None) -> None:
    """Check every guarantee, with an operator's rights.

    Args:
        stranger: the same controller, as a user who is no operator and has submitted nothing.
    Raises:
        NonConformance: one does not hold.
    """
    for guarantee in CHECKS:
        _with_offer(rest, guarantee)
    if stranger is not None:
        _with_offer(rest, lambda rest: strangers_see_nothing(rest, stranger))


def _with_offer(rest: Rest, guarantee: Callable[[Rest], None]) -> None:
    rest.good("PUT", PATH, {"resources": {"cpu": 4, RARE: 4}, "count": 1, "expires_in": "10m"})
    try:
        guarantee(rest)
    finally:
        rest.ask("POST", "/v1/jobs/cancel", {"filter": {"name": OFFER, "state": "pending,held"}})
        rest.ask("DELETE", PATH)


def waiting_work_is_counted_by_class(rest: Rest) -> None:
    """Jobs that are alike are one class: with all their tasks, whose they are, the first one, and since when."""
    first = _submit(rest)
    _submit(rest, array=5)
    want = _want(rest)
    _require(want["jobs"] == 2, f"2 jobs wait, and {want['jobs']} are counted")
    _require(want["tasks"] == 6, f"6 tasks wait, and {want['tasks']} are counted")
    _require(want["head"] == first, f"job {first} is first, and {want['head']} is said to be")
    _require(sum(want["queues"].values()) == 2 and sum(want["users"].values()) == 2, "queues or users do not add up")
    submitted_ms = rest.good("GET", f"/v1/jobs/{first}")["submit_ms"]
    _require(want["head_since_ms"] >= submitted_ms, "the first job is said to wait since before it was submitted")


def what_is_lacking_is_named(rest: Rest) -> None:
    """Too few nodes could ever hold it, for want of that much of that resource."""
    _submit(rest)
    want = _want(rest)
    _require(want["short"] == "nodes", f"no node could hold it, and it is short of '{want['short']}'")
    _require(want["resource"] == RARE, f"no node has {RARE}, and '{want['resource']}' is said to lack")
    asked = want["request"][RARE]
    _require(want["short_by"] == asked, f"{asked} is lacking, and {want['short_by']} is said to")
    _require((want["fits_now"], want["fits_ever"]) == (0, 0), "it is said to fit on a node")


def what_waits_for_a_person_is_not_wanted(rest: Rest) -> None:
    """Held work appears when it is released."""
    job = _submit(rest, hold=True)
    _require(_wants(rest) == [], "held work is among what waits for nodes")
    rest.good("POST", "/v1/jobs/release", {"ids": [job]})
    _require(_want(rest)["head"] == job, "released work is not among what waits for nodes")


def a_version_names_the_wants(rest: Rest) -> None:
    """What is known is not sent again, at once or after a wait; a change is."""
    _submit(rest)
    deadline_s = time.monotonic() + WITHIN_S
    while True:  # others may submit meanwhile
        version = rest.good("GET", "/v1/wants")["version"]
        if rest.ask("GET", "/v1/wants", unless=version).status == 304:
            break
        _require(time.monotonic() < deadline_s, "no version is ever known")
    _submit(rest)
    status, body = rest.ask("GET", "/v1/wants?wait=30", unless=version)
    _require(status == 200, f"a change was answered with {status}")
    _require(body["version"] != version, "a change did not change the version")


def reservations_name_nodes_and_times(rest: Rest) -> None:
    """Every one belongs to a job that has not ended, on distinct nodes that there are, and ends after it begins."""
    nodes = {node["name"] for node in rest.good("GET", "/v1/nodes")["nodes"]}
    plan = rest.good("GET", "/v1/plan")
    _require(isinstance(plan["truncated"], bool), "it does not say whether it is whole")
    for one in plan["reservations"]:
        _require(set(one["nodes"]) <= nodes and len(set(one["nodes"])) == len(one["nodes"]), f"unknown nodes: {one}")
        ends_after = one["start_ms"] is None or one["end_ms"] is None or one["end_ms"] >= one["start_ms"]
        _require(ends_after, f"it ends before it begins: {one}")


def questions_are_checked(rest: Rest) -> None:
    """A wait that is too long, and what does not exist."""
    rest.refused("GET", "/v1/wants?wait=100000", None, 400)
    rest.refused("GET", "/v1/wants?color=red", None, 400)
    rest.refused("GET", "/v1/plan?color=red", None, 400)


def strangers_see_nothing(rest: Rest, stranger: Rest) -> None:
    """A user does not see what others wait for."""
    _submit(rest)
    found = stranger.good("GET", "/v1/wants")["classes"]
    _require(found == [], f"a user who has submitted nothing sees {found}")
    found = stranger.good("GET", "/v1/plan")["reservations"]
    _require(found == [], f"a user who has submitted nothing sees {found}")


CHECKS: Final[tuple[Callable[[Rest], None], ...]] = (
    waiting_work_is_counted_by_class,
    what_is_lacking_is_named,
    what_waits_for_a_person_is_not_wanted,
    a_version_names_the_wants,
    reservations_name_nodes_and_times,
    questions_are_checked,
)


def _submit(rest: Rest, **fields: Any) -> str:
    """A job that waits for a machine that could be rented."""
    spec = {"command": ["true"], "name": OFFER, "request": REQUEST, "walltime": "1m", **fields}
    job: str = rest.good("POST", "/v1/jobs", spec)["ids"][0]
    return job


def _wants(rest: Rest) -> list[Any]:
    """Classes that ask for the rare resource."""
    return [one for one in rest.good("GET", "/v1/wants")["classes"] if one["request"].get(RARE)]


def _want(rest: Rest) -> Any:
    """The one class that asks for it, as soon as the engine has heard of it."""
    found = _wants(rest)
    _require(len(found) == 1, f"one class is expected, and there are {len(found)}")
    return found[0]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NonConformance(f"ask: {otherwise}")


def main(argv: Sequence[str] | None = None) -> int:
    """Check a controller and print the result. Exit code 0: it conforms; 1: it does not."""
    url = checks_parser("ask", __doc__).parse_args(argv).url
    return report(url, lambda: check(rest_at(url)), f"{len(CHECKS)} guarantees of asking")


if __name__ == "__main__":
    sys.exit(main())
