"""What rights cost the controller: 10,000 decisions a second, and a line of the audit log.

A decision is everything between a request's head and its handler: who shows the token, how far the right reaches, and
whose the job is that the path names; for a user's own job, for one that was delegated through an account tree three
levels deep, and for one that is somebody else's. The figure in cores is the time of one decision times 10,000.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from hal.core.model import HALError
from hal.core.model.policy import Account, Policy, Queue
from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.delegation import Delegations
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.step_credentials import StepCredentials
from hal.daemons.controller.access.tokens import Token, TokenBook, digest_of, secret_text
from hal.daemons.controller.api.requests.ownership import PathOwnership
from hal.daemons.controller.api.table import DELEGATED, FOR_NARROWED, RIGHTS
from hal.daemons.controller.service.jobs.owners import Owned
from hal.rest.audit import AuditLog
from hal.rest.callers import LocalPeer
from hal.rest.enforcement import Rights
from hal.rest.identity import Visit
from hal.rest.rights import Role

sys.path.insert(0, str(Path(__file__).resolve().parent))
from _private_hal import say

DECISIONS: Final = 10_000
"""A second."""
ROUNDS: Final = 5
LINES: Final = 20_000
USERS: Final = 1_000
POLICY: Final = Policy(
    queues={"default": Queue()},
    accounts={
        "top": Account(coordinators=("u1",)),
        "middle": Account(parent="top"),
        "low": Account(parent="middle"),
        "other": Account(),
    },
)


class Jobs:
    """Whose jobs are: three, as the plane knows them."""

    _KNOWN: Final = {
        1: Owned(user="u1", account="other", queue="default"),
        2: Owned(user="u2", account="low", queue="default"),
        3: Owned(user="u3", account="other", queue="default"),
    }

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        return {job: self._KNOWN[job] for job in jobs}


def drive(work: Any) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


def best_s(call: Callable[[], None]) -> float:
    """The least processor time of some rounds: what the work itself takes, whatever else the machine does."""
    taken = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return min(taken)


def decisions() -> None:
    """By kind of request, and the dearest."""
    now_ms, book, texts = 1_000, TokenBook(), []
    for number in range(USERS):
        secret = f"{number:064x}"
        token = Token(
            id=f"{number:012x}", digest=digest_of(secret), user=f"u{number}", role=Role.USER, created_ms=0,
            expires_ms=1 << 50, used_ms=0,
        )  # fmt: skip
        book.put(token)
        texts.append(secret_text(token.id, secret))
    callers = Authenticator(
        AccessSection(), book, owner=LocalPeer(0, "root", True), home_token="h" * 64, now_ms=lambda: now_ms,
        used=lambda token: None, steps=StepCredentials(lambda: "i", lambda: "s", None),
    )  # fmt: skip
    path = PathOwnership(Jobs(), Delegations(lambda: POLICY), DELEGATED)
    rights = Rights(RIGHTS, for_narrowed=FOR_NARROWED)
    headers = {b"authorization": f"Bearer {texts[1]}".encode()}

    async def decide(job: str) -> None:
        visit = Visit(await callers.identify({}, headers, ("192.0.2.7", 4711)), "")
        request: Any = SimpleNamespace(
            method="GET",
            path_params={"job": job},
            scope={"path_template": "/v1/jobs/{job}", "state": {"visit": visit}},
        )
        try:
            await rights.enforce(request, path.check)
        except HALError:
            assert job == "3"

    def many(job: str) -> None:
        for _ in range(DECISIONS):
            drive(decide(job))

    for name, job in (("own", "1"), ("delegated", "2"), ("refused", "3")):
        # Refusals build a problem for people; a caller who is refused again and again is limited long before.
        cores = best_s(lambda job=job: many(job))  # type: ignore[misc]
        say(f"access-decisions-{name}", cores, "cores at 10,000/s", 0.1 if name != "refused" else None, higher=False)


def audit_lines() -> None:
    """A line in the chain, of a change that was made."""
    with tempfile.TemporaryDirectory() as place:
        log = AuditLog(Path(place) / "audit.log", max_bytes=1 << 30)

        def many() -> None:
            for number in range(LINES):
                log.write(
                    at_ms=number, user="u1", role="user", peer="192.0.2.7", token="0123456789ab", method="POST",
                    path="/v1/jobs", status=201, targets=["1-100"], trace_id="0" * 32,
                )  # fmt: skip

        say("audit-line", best_s(many) / LINES * 1e6, "us", higher=False)
        log.close()


def main() -> int:
    decisions()
    audit_lines()
    return 0


if __name__ == "__main__":
    sys.exit(main())
