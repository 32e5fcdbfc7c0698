"""Rent and close: what a program that rents machines may rely on; see docs/renting.md.

`python -m hal.conformance.plane.rent URL` checks a running controller, with the operator's token in $HAL_TOKEN. With
`--node NAME`, work is evicted from that node, which is drained and opened again; with `--gone NAME` that node is
declared gone. Without them no node is touched. What is submitted and offered is removed again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hal.conformance.answers import NonConformance
from hal.conformance.plane.command_line import checks_parser, report, rest_at
from hal.conformance.plane.rest import Rest

OFFER: Final = "hal-conformance"
PATH: Final = f"/v1/offers/{OFFER}"
RARE: Final = "hal-conformance-rent"
"""A resource that no node has."""
SHAPE: Final = {"resources": {"cpu": 1, RARE: 4}, "labels": {"hal-conformance": "yes"}, "count": 2}
WITHIN_S: Final = 60.0
"""Long enough for a machine that is busy; what has not happened then is believed never to happen."""


def check(rest: Rest, stranger: Rest | None = None, *, node: str = "", gone: str = "") -> None:
    """Check every guarantee, with an operator's rights.

    Args:
        stranger: the same controller, as a user who is no operator.
        node: a node with a cpu to spare, from which work may be evicted, and which may be drained; '': none.
        gone: a node that may be declared gone; '': none.
    Raises:
        NonConformance: a guarantee does not hold.
    """
    for guarantee in CHECKS:
        rest.ask("DELETE", PATH)
        try:
            guarantee(rest)
        finally:
            rest.ask("DELETE", PATH)
    if stranger is not None:
        only_operators_rent(stranger)
    if node:
        evicted_work_runs_again(rest, node)
        drained_node_evicts_what_is_left(rest, node)
    if gone:
        gone_machine_is_fenced(rest, gone)


# ── offers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def offers_are_read_back(rest: Rest) -> None:
    """As they were put, in base units, until they expire; put again, the later one holds."""
    made = rest.good("PUT", PATH, {**SHAPE, "expires_in": "10m", "price_microusd_per_hour": 1_500_000})
    _require(made["resources"] == {"cpu": 1_000, RARE: 4} and made["count"] == 2, f"not what was put: {made}")
    _require(rest.good("GET", PATH) == made, "an offer is not read back as it was put")
    later = rest.good("PUT", PATH, {**SHAPE, "count": 1, "expires_in": "20m"})
    _require(later["count"] == 1 and later["expires_ms"] > made["expires_ms"], "an offer was not made again")
    listed = [one["name"] for one in rest.good("GET", "/v1/offers")["offers"]]
    _require(listed.count(OFFER) == 1, f"the list names it {listed.count(OFFER)} times")


def work_waits_for_what_is_offered(rest: Rest) -> None:
    """What no node could hold is refused without an offer; with one it is accepted, waits and names it."""
    judged = _has_nodes(rest)
    if judged:
        rest.refused("POST", "/v1/jobs", _job(), 400)
    rest.good("PUT", PATH, SHAPE)
    if judged:
        rest.refused("POST", "/v1/jobs", {**_job(), "request": {RARE: 5}}, 400)
    job = rest.good("POST", "/v1/jobs", _job())["ids"][0]
    try:
        if judged:
            why = rest.good("GET", f"/v1/jobs/{job}/why")
            _require(why["reason"] == "offer" and OFFER in why["message"], f"its reason names no offer: {why}")
        rest.good("DELETE", PATH)
        _require(rest.good("GET", f"/v1/jobs/{job}")["state"] == "pending", "work was ended with its offer")
        if judged:
            why = rest.good("GET", f"/v1/jobs/{job}/why")
            _require(why["reason"] == "impossible", f"work waits for an offer that is gone: {why}")
    finally:
        rest.good("POST", "/v1/jobs/cancel", {"ids": [job]})


def gangs_may_need_more_machines_than_are_offered(rest: Rest) -> None:
    """Two are offered: three are refused."""
    rest.good("PUT", PATH, SHAPE)
    if _has_nodes(rest):
        rest.refused("POST", "/v1/jobs", {**_job(), "nodes": 3}, 400)
    job = rest.good("POST", "/v1/jobs", {**_job(), "nodes": 2})["ids"][0]
    rest.good("POST", "/v1/jobs/cancel", {"ids": [job]})


def offers_expire(rest: Rest) -> None:
    """By themselves: a program that is gone offers nothing."""
    rest.good("PUT", PATH, {**SHAPE, "expires_in": "1s"})
    _await(lambda: rest.ask("GET", PATH).status == 404, "what expires in a second is offered still")


def withdrawn_is_gone(rest: Rest) -> None:
    """Once; a second time there is nothing to withdraw."""
    rest.good("PUT", PATH, SHAPE)
    _require(rest.good("DELETE", PATH)["name"] == OFFER, "withdrawing says nothing of what was withdrawn")
    rest.refused("GET", PATH, None, 404)
    rest.refused("DELETE", PATH, None, 404)


def wrong_offers_change_nothing(rest: Rest) -> None:
    """Refused as a whole, with a reason."""
    before = rest.good("PUT", PATH, SHAPE)
    malformed: tuple[dict[str, Any], ...] = (
        {"resources": {}},
        {"resources": {"cpu": "many"}},
        {"resources": {"cpu": -1}},
        {"count": 0},
        {"count": 1 << 40},
        {"labels": {"": "x"}},
        {"labels": {"k": "v" * 300}},
        {"expires_in": "0s"},
        {"expires_in": "8d"},
        {"price_microusd_per_hour": -1},
        {"colour": "red"},
    )
    for wrong in malformed:
        rest.refused("PUT", PATH, {**SHAPE, **wrong}, 400)
    rest.refused("PUT", "/v1/offers/a%2Fb", SHAPE, 400, 404)
    _require(rest.good("GET", PATH) == before, "a refused offer changed something")


# ── evict, drain, fence ───────────────────────────────────────────────────────────────────────────────────────────


def wrong_evictions_evict_nothing(rest: Rest) -> None:
    """Malformed ones are refused as a whole; what is not there, or does not run, is one refused outcome each."""
    malformed: tuple[dict[str, Any], ...] = (
        {},
        {"ids": ["one"]},
        {"ids": ["1"], "mode": "suspend"},
        {"ids": ["1"], "within": "-1s"},
        {"ids": ["1"], "within": "2d"},
        {"ids": ["1"], "reason": "two\nlines"},
        {"ids": ["1"], "reason": "x" * 501},
        {"ids": ["1"], "colour": "red"},
    )
    for wrong in malformed:
        rest.refused("POST", "/v1/jobs/evict", wrong, 400)
    rest.refused("POST", "/v1/nodes/drain", {"nodes": ["nobody"], "within": "1h"}, 400)
    held = rest.good("POST", "/v1/jobs", {"command": ["true"], "hold": True})["ids"][0]
    try:
        asked = {"ids": [held, "999999999999"], "nodes": ["hal.conformance.nobody"]}
        outcomes = rest.good("POST", "/v1/jobs/evict", asked)["results"]
        codes = [(one["ok"], one["code"]) for one in outcomes]
        _require(codes == [(False, "conflict"), (False, "not-found"), (False, "not-found")], f"outcomes: {outcomes}")
    finally:
        rest.good("POST", "/v1/jobs/cancel", {"ids": [held]})


def joining_many_is_for_admins(rest: Rest) -> None:
    """Whoever has a join token is given everybody's jobs: an operator cannot make one."""
    answer = rest.ask("POST", "/v1/tokens", {"uses": 0})
    if answer.status not in (201, 403, 409):  # an admin's rights, or no listening for agents, are no fault
        raise NonConformance(f"a join token was answered with {answer.status}: {answer.body}")
    if answer.status == 201:
        _require(answer.body["uses"] == 0, f"a token for any number is for {answer.body['uses']}")
        rest.good("POST", f"/v1/tokens/{answer.body['id']}/revoke")


def evicted_work_runs_again(rest: Rest, node: str) -> None:
    """The attempt ends as preempted with who and why; no retry is counted."""
    job = _sleeper(rest, node)
    try:
        rest.good("POST", "/v1/jobs/evict", {"ids": [job], "reason": "conformance", "within": "5s"})
        _await(lambda: len(_attempts(rest, job)) == 2, "evicted work did not run again")
        first = _attempts(rest, job)[0]
        said = "evicted by" in first["message"] and "conformance" in first["message"]
        _require(first["state"] == "preempted" and said, f"the evicted attempt: {first}")
        _require(rest.good("GET", f"/v1/jobs/{job}/tasks/0")["retries"] == 0, "an eviction cost a retry")
    finally:
        rest.good("POST", "/v1/jobs/cancel", {"ids": [job]})
        _await(lambda: rest.good("GET", f"/v1/jobs/{job}")["end_ms"] is not None, "cancelled work did not end")


def drained_node_evicts_what_is_left(rest: Rest, node: str) -> None:
    """When its time is over, in the mode that was asked for; the node shows it, and opens again when it is told to."""
    job = _sleeper(rest, node)
    drain = {"nodes": [node], "evict": "cancel", "within": "1s", "grace": "5s", "reason": "conformance"}
    try:
        (outcome,) = rest.good("POST", "/v1/nodes/drain", drain)["results"]
        _require(outcome["ok"] and outcome["state"] == "draining", f"draining: {outcome}")
        (closure,) = [one for one in rest.good("GET", f"/v1/nodes/{node}")["closures"] if one["source"] == "person"]
        _require(closure["evict"] == "cancel" and closure["evict_at_ms"] > 0, f"the node does not show it: {closure}")
        _await(lambda: rest.good("GET", f"/v1/jobs/{job}")["state"] == "cancelled", "what was left was not evicted")
        _await(lambda: rest.good("GET", f"/v1/nodes/{node}")["state"] == "cordoned", "it is empty, and drains still")
    finally:
        rest.good("POST", "/v1/jobs/cancel", {"ids": [job]})
        rest.good("POST", "/v1/nodes/uncordon", {"nodes": [node]})


def gone_machine_is_fenced(rest: Rest, node: str) -> None:
    """At once, in any state but a fenced one; said again, nothing changes; nobody opens it."""
    for _ in range(2):
        fenced = rest.good("POST", f"/v1/nodes/{node}/fence", {"machine_gone": True, "reason": "conformance"})
        sources = [one["source"] for one in fenced["closures"]]
        _require(sources.count("fenced") == 1 and fenced["running"] == 0, f"a machine that is gone: {fenced}")
    rest.good("POST", "/v1/nodes/uncordon", {"nodes": [node]})
    sources = [one["source"] for one in rest.good("GET", f"/v1/nodes/{node}")["closures"]]
    _require("fenced" in sources, "somebody opened a node whose machine is gone")


def only_operators_rent(stranger: Rest) -> None:
    """A user reads offers, and does nothing else of this."""
    stranger.good("GET", "/v1/offers")
    for method, path, body in (
        ("PUT", PATH, SHAPE),
        ("DELETE", PATH, None),
        ("POST", "/v1/jobs/evict", {"ids": ["1"]}),
        ("POST", "/v1/nodes/drain", {"nodes": ["n1"], "evict": "cancel"}),
        ("POST", "/v1/nodes/n1/fence", {"machine_gone": True}),
        ("POST", "/v1/tokens", {"uses": 0}),
    ):
        stranger.refused(method, path, body, 403)


CHECKS: Final[tuple[Callable[[Rest], None], ...]] = (
    offers_are_read_back,
    work_waits_for_what_is_offered,
    gangs_may_need_more_machines_than_are_offered,
    offers_expire,
    withdrawn_is_gone,
    wrong_offers_change_nothing,
    wrong_evictions_evict_nothing,
    joining_many_is_for_admins,
)


def _job() -> dict[str, Any]:
    return {"command": ["true"], "request": {RARE: 1}, "name": "hal-conformance"}


def _has_nodes(rest: Rest) -> bool:
    """Without any node nothing is refused: it is not known yet what there will be."""
    return bool(rest.good("GET", "/v1/nodes")["nodes"])


def _sleeper(rest: Rest, node: str) -> str:
    """A job that runs on that node."""
    labels = rest.good("GET", f"/v1/nodes/{node}")["labels"]
    key = "hal.node" if "hal.node" in labels else next(iter(labels), "")
    _require(bool(key), f"node {node} has no label by which work could be sent there")
    spec = {"command": ["sleep", "600"], "request": {"cpu": 1}, "constraints": [f"{key}={labels[key]}"]}
    job: str = rest.good("POST", "/v1/jobs", {**spec, "name": "hal-conformance"})["ids"][0]
    _await(lambda: rest.good("GET", f"/v1/jobs/{job}")["state"] == "running", f"job {job} did not start on {node}")
    return job


def _attempts(rest: Rest, job: str) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = rest.good("GET", f"/v1/jobs/{job}/tasks/0")["attempts"]
    return attempts


def _await(holds: Callable[[], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        _require(time.monotonic() < deadline_s, otherwise)
        time.sleep(0.02)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NonConformance(otherwise)


def main(argv: Sequence[str] | None = None) -> int:
    """Check a controller and print the result. Exit code 0: it conforms; 1: it does not."""
    parser = checks_parser("rent", __doc__)
    parser.add_argument("--node", default="", help="work may be evicted from this node, and it may be drained")
    parser.add_argument("--gone", default="", help="this node may be declared gone")
    asked = parser.parse_args(argv)
    guarantees = f"{len(CHECKS) + 2 * bool(asked.node) + bool(asked.gone)} guarantees of renting"
    return report(asked.url, lambda: check(rest_at(asked.url), node=asked.node, gone=asked.gone), guarantees)


if __name__ == "__main__":
    sys.exit(main())
