"""Advise: what a plane may rely on when it puts advice; see docs/advice.md."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hal.conformance.answers import NonConformance
from hal.conformance.plane.command_line import checks_parser, report, rest_at
from hal.conformance.plane.rest import Rest
from hal.core.model.advice import MAX_KEYS_A_REQUEST

KIND: Final = "hal-conformance"
PATH: Final = f"/v1/advice/{KIND}"
EXPIRED_WITHIN_S: Final = 30.0
"""Long enough for a machine that is busy; what is held after it is believed to be held for good."""


def check(rest: Rest, stranger: Rest | None = None) -> None:
    """Check every guarantee, with an operator's rights.

    Args:
        stranger: the same controller, as a user who is no operator.
    Raises:
        NonConformance: one does not hold.
    """
    for guarantee in CHECKS:
        rest.ask("DELETE", PATH)
        guarantee(rest)
    rest.ask("DELETE", PATH)
    if stranger is not None:
        only_operators_advise(stranger)


def whole_replaces_all(rest: Rest) -> None:
    """What is put whole is all there is; keys that name nothing are kept."""
    _put(rest, ["one", "two", "nobody-knows-me"], [1, 2.5, -3e-7])
    _require(_held(rest) == {"one": 1, "two": 2.5, "nobody-knows-me": -3e-7}, "values are not those that were put")
    _put(rest, ["two"], [4])
    _require(_held(rest) == {"two": 4}, "keys of an earlier whole table are still there")


def delta_changes_what_it_names(rest: Rest) -> None:
    """Other keys stay; null takes a value away."""
    _put(rest, ["one", "two"], [1, 2])
    _put(rest, ["two", "three"], [None, 3], delta=True)
    _require(_held(rest) == {"one": 1, "three": 3}, "a delta did not change exactly the keys that it names")


def versions_ascend(rest: Rest) -> None:
    """A version that is held changes nothing when it is put again, as after an answer that was lost; an older one is
    refused; without one the next is taken."""
    _put(rest, ["one"], [1], version=7)
    repeated = rest.good("PUT", PATH, _body(["one"], [9], version=7))
    _require(repeated["applied"] is False and _held(rest) == {"one": 1}, "a repeated version changed something")
    rest.refused("PUT", PATH, _body(["one"], [9], version=6), 409)
    _require(_held(rest) == {"one": 1}, "an older version changed something")
    _require(_put(rest, ["one"], [2])["version"] == 8, "the version after 7 is not 8")


def delta_has_its_base(rest: Rest) -> None:
    """A delta that is based on a version which is not held is refused: the plane then knows to put it whole."""
    rest.refused("PUT", PATH, _body(["one"], [1], delta=True, base=1), 409)
    _require(rest.ask("GET", PATH).status == 404, "a refused delta made a table")
    _put(rest, ["one"], [1], version=3)
    rest.refused("PUT", PATH, _body(["one"], [2], delta=True, base=2), 409)
    _put(rest, ["two"], [2], delta=True, base=3, version=4)
    _require(_held(rest) == {"one": 1, "two": 2}, "a delta on its base did not change exactly the keys that it names")


def advice_expires(rest: Rest) -> None:
    """Nothing is held beyond `expires_in`; a delta without keys renews it."""
    view = _put(rest, ["one"], [1], expires_in="10m")
    later = _put(rest, [], [], delta=True, expires_in="20m")
    _require(later["expires_ms"] > view["expires_ms"], "an empty delta did not renew the advice")
    _put(rest, ["one"], [1], expires_in="100ms")
    deadline_s = time.monotonic() + EXPIRED_WITHIN_S
    while rest.ask("GET", PATH).status != 404:
        _require(time.monotonic() < deadline_s, f"what expires in 100 ms is held after {EXPIRED_WITHIN_S:.0f} s")
        time.sleep(0.02)
    _require(
        all(one["kind"] != KIND for one in rest.good("GET", "/v1/advice")["advice"]), "the list has expired advice"
    )


def key_space_is_fixed(rest: Rest) -> None:
    """Keys of a kind that is held name what they named; withdrawn, they may name something else."""
    _put(rest, ["one"], [1])
    rest.refused("PUT", PATH, _body([5], [1], space="jobs"), 409)
    rest.good("DELETE", PATH)
    rest.good("PUT", PATH, _body([5, "6"], [1, 2], space="jobs"))
    page = rest.good("GET", PATH)
    _require(sorted(page["keys"]) == [5, 6], f"job ids are not shown as numbers: {page['keys']}")


def wrong_updates_change_nothing(rest: Rest) -> None:
    """Refused as a whole, with a reason."""
    _put(rest, ["one"], [1])
    too_many = [f"n{number}" for number in range(MAX_KEYS_A_REQUEST + 1)]
    for body, statuses in (
        (_body(["one", "two"], [1]), (400,)),
        (_body(["one", "one"], [1, 2]), (400,)),
        (_body([""], [1]), (400,)),
        (_body(["x" * 257], [1]), (400,)),
        (_body(["one"], ["cheap"]), (400,)),
        (_body(["one"], [1], version=0), (400,)),
        (_body(["one"], [1], base=1), (400,)),
        (_body(["one"], [1], expires_in="0s"), (400,)),
        (_body(["one"], [1], expires_in="8d"), (400,)),
        (_body(["one"], [1], space="planets"), (400,)),
        (_body(["one"], [1], colour="red"), (400,)),
        (_body([0], [1], space="jobs"), (400,)),
        (_body(too_many, [1] * len(too_many)), (400, 413)),
    ):
        rest.refused("PUT", PATH, body, *statuses)
    rest.refused("PUT", "/v1/advice/Price%20of%20nodes", _body(["one"], [1]), 400)
    _require(_held(rest) == {"one": 1}, "a refused update changed something")


def large_tables_are_read_in_pages(rest: Rest) -> None:
    """A full request is taken as a whole, and read back."""
    keys = [f"n{number}" for number in range(MAX_KEYS_A_REQUEST)]
    view = _put(rest, keys, list(range(len(keys))))
    _require(view["count"] == len(keys), f"{view['count']} keys are held of {len(keys)}")
    _require(_held(rest) == {key: number for number, key in enumerate(keys)}, "pages do not hold what was put")


def withdrawn_is_gone(rest: Rest) -> None:
    """Once; a second time there is nothing to withdraw."""
    _put(rest, ["one"], [1])
    rest.good("DELETE", PATH)
    rest.refused("GET", PATH, None, 404)
    rest.refused("DELETE", PATH, None, 404)


def only_operators_advise(stranger: Rest) -> None:
    """A user neither puts advice nor sees any: it may name other people's jobs."""
    for method, path in (("GET", "/v1/advice"), ("GET", PATH), ("PUT", PATH), ("DELETE", PATH)):
        stranger.refused(method, path, _body(["one"], [1]) if method == "PUT" else None, 403)


CHECKS: Final[tuple[Callable[[Rest], None], ...]] = (
    whole_replaces_all,
    delta_changes_what_it_names,
    versions_ascend,
    delta_has_its_base,
    advice_expires,
    key_space_is_fixed,
    wrong_updates_change_nothing,
    large_tables_are_read_in_pages,
    withdrawn_is_gone,
)


def _body(keys: list[Any], values: list[Any], **more: Any) -> dict[str, Any]:
    return {"space": "nodes", "keys": keys, "values": values, **more}


def _put(rest: Rest, keys: list[Any], values: list[Any], **more: Any) -> Any:
    answer = rest.good("PUT", PATH, _body(keys, values, **more))
    _require(answer["applied"] is True, f"an update was not applied: {answer}")
    return answer["advice"]


def _held(rest: Rest) -> dict[Any, float]:
    """All keys and values, page by page."""
    values: dict[Any, float] = {}
    cursor = ""
    while True:
        page = rest.good("GET", f"{PATH}?limit=10000" + (f"&cursor={cursor}" if cursor else ""))
        _require(len(page["keys"]) == len(page["values"]), "a page has another number of keys than of values")
        values.update(zip(page["keys"], page["values"], strict=True))
        if not page["cursor"]:
            return values
        _require(page["cursor"] != cursor, "a page names itself as the next one")
        cursor = page["cursor"]


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NonConformance(f"advise: {otherwise}")


def main(argv: Sequence[str] | None = None) -> int:
    """Check a controller and print the result. Exit code 0: it conforms; 1: it does not."""
    url = checks_parser("advise", __doc__).parse_args(argv).url
    return report(url, lambda: check(rest_at(url)), f"{len(CHECKS)} guarantees of advising")


if __name__ == "__main__":
    sys.exit(main())
