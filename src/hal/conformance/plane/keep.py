"""Keep: what callers of any daemon's REST may rely on, a plane's own as the controller's; see docs/daemons.md.

`python -m hal.conformance.plane.keep URL` checks a running daemon, with the token in $HAL_TOKEN; with `--controller` it
also checks that the daemon takes its callers for whom the controller takes them. Changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from hal.conformance.answers import NonConformance
from hal.conformance.plane.command_line import checks_parser, report, rest_at
from hal.conformance.plane.rest import Exchange, Rest

DOCUMENT: Final = "/v1/openapi.json"
WHO: Final = "/v1/whoami"
NOWHERE: Final = "/v1/hal-conformance-keep"
PROBLEM: Final = "application/problem+json"
VERSION: Final = "hal-api-version"
FIELDS: Final = ("type", "title", "status", "detail", "code", "hint")
TOO_MANY_HEADERS: Final = 200
TOO_LONG_PATH: Final = 20_000
"""Characters."""


def check(rest: Rest, controller: Rest | None = None) -> None:
    """Check every guarantee.

    Args:
        controller: with the same token.
    Raises:
        NonConformance: one does not hold.
    """
    for guarantee in CHECKS:
        guarantee(rest)
    if controller is not None:
        callers_are_whom_the_controller_knows(rest, controller)


def it_describes_itself(rest: Rest) -> None:
    """An OpenAPI 3.1 document of every operation, each with an id of its own and the refusals that callers can meet."""
    document = _plain(_asked(rest, DOCUMENT))
    _require(str(document.get("openapi", "")).startswith("3.1"), "it is not described in OpenAPI 3.1")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    _require(bool(operations), "no operation is described")
    names = [operation.get("operationId") for operation in operations]
    _require(None not in names and len(set(names)) == len(names), "operations have no ids, or the same")
    for operation in operations:
        lacking = {"401", "403", "429"} - set(operation["responses"])
        _require(not lacking, f"{operation['operationId']} is not said to refuse with {sorted(lacking)}")
    _require(DOCUMENT in document["paths"], "the document does not describe itself")


def a_version_is_agreed(rest: Rest) -> None:
    """Every answer names its version; a request may name the one that it expects; an unknown one is refused."""
    for path in (DOCUMENT, NOWHERE):
        _require(VERSION in _asked(rest, path).headers, f"the answer to GET {path} names no version")
    version = _asked(rest, DOCUMENT).headers[VERSION]
    same = _asked(rest, DOCUMENT, {VERSION: version})
    _require((same.status, same.headers.get(VERSION)) == (200, version), f"version {version} is not spoken")
    _problem(_asked(rest, DOCUMENT, {VERSION: "999999"}), 400)


def errors_are_problems(rest: Rest) -> None:
    """What does not exist, a method that is not possible, a parameter that is not known: each says what to do."""
    _problem(_asked(rest, NOWHERE), 404)
    _problem(rest.exchange("PATCH", DOCUMENT, rest.authorization), 405)
    _problem(_asked(rest, f"{DOCUMENT}?hal-conformance-keep=1"), 400)


def too_much_is_refused(rest: Rest) -> None:
    """Headers and paths have bounds, below those at which anything breaks."""
    many = {f"X-{number}": "y" for number in range(TOO_MANY_HEADERS)}
    _problem(_asked(rest, DOCUMENT, many), 431)
    _problem(_asked(rest, f"{NOWHERE}/{'x' * TOO_LONG_PATH}"), 400)


def callers_are_named(rest: Rest) -> None:
    """Who asks is known, with a role; without a token that opens something nobody is let in, and is told how."""
    who = _plain(_asked(rest, WHO))
    _require(bool(who.get("user")), "it is not said who asks")
    _require(who.get("role") in ("user", "operator", "admin"), f"'{who.get('role')}' is no role")
    if not rest.needs_token:
        return
    for headers in ({}, {"Authorization": "Bearer hal_conformance_keep"}, {"Authorization": "Basic aGFsOmhhbA=="}):
        refused = rest.exchange("GET", WHO, headers)
        _problem(refused, 401)
        _require(refused.headers.get("www-authenticate") == "Bearer", "a stranger is not told to show a token")


def callers_are_whom_the_controller_knows(rest: Rest, controller: Rest) -> None:
    """The same token is the same user, with the same role and end."""
    here, there = _plain(_asked(rest, WHO)), _plain(_asked(controller, WHO))
    for field in ("user", "role", "token", "expires_ms", "accounts", "queues", "read_only"):
        same = here.get(field) == there.get(field)
        _require(same, f"the caller's {field} is {here.get(field)!r} here, and {there.get(field)!r} at the controller")


CHECKS: Final[tuple[Callable[[Rest], None], ...]] = (
    it_describes_itself,
    a_version_is_agreed,
    errors_are_problems,
    too_much_is_refused,
    callers_are_named,
)


def _asked(rest: Rest, path: str, more: dict[str, str] | None = None) -> Exchange:
    return rest.exchange("GET", path, {**rest.authorization, **(more or {})})


def _plain(answer: Exchange) -> Any:
    _require(answer.status == 200, f"a request was refused with {answer.status}: {answer.body[:200]!r}")
    return json.loads(answer.body)


def _problem(answer: Exchange, status: int) -> None:
    _require(answer.status == status, f"a request that must be refused with {status} was answered with {answer.status}")
    _require(answer.headers.get("content-type") == PROBLEM, f"the refusal with {status} is no problem document")
    problem = json.loads(answer.body)
    lacking = [field for field in FIELDS if field not in problem]
    _require(not lacking, f"the refusal with {status} lacks {lacking}")
    _require(problem["status"] == status and bool(problem["detail"]), f"the refusal with {status} does not say why")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NonConformance(f"keep: {otherwise}")


def main(argv: Sequence[str] | None = None) -> int:
    """Check a daemon and print the result. Exit code 0: it conforms; 1: it does not."""
    parser = checks_parser("keep", __doc__, "a daemon")
    parser.add_argument("--controller", metavar="URL", default="", help="of the controller, to compare callers")
    asked = parser.parse_args(argv)
    controller = rest_at(asked.controller) if asked.controller else None
    guarantees = f"{len(CHECKS) + (controller is not None)} guarantees of keeping"
    return report(asked.url, lambda: check(rest_at(asked.url), controller), guarantees)


if __name__ == "__main__":
    sys.exit(main())
