"""REST of a controller that does not lead: lists from the store, its own health; all else is the leader's answer."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from litestar.types import Receive, Scope, Send

from hal.core.model import HALError
from hal.daemons.controller.access.step_credentials import StepCredentials
from hal.daemons.controller.access.tokens import Token, TokenBook
from hal.daemons.controller.api.errors import WAIT, NoLeaderError
from hal.daemons.controller.api.follower.forwarding import forward
from hal.daemons.controller.api.follower.own_answers import OWN, FollowerApi, is_own
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import PathOwnership
from hal.daemons.controller.api.table import FOR_NARROWED
from hal.daemons.controller.following.follower import Follower
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.metrics.slow_facts import SlowFacts
from hal.rest.identity import Visit
from hal.rest.problems import PROBLEM_JSON, problem_of
from hal.rest.rights import Role
from hal.rest.routes import Routes
from hal.runtime.authority import authority_file
from hal.runtime.interface import Runtime

OWN_ROUTES: Final = Routes(OWN, call_type=Call, for_narrowed=FOR_NARROWED)


class FollowerTokens:
    """What a follower knows of tokens: what the database had a moment ago. The leader checks again."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    @property
    def book(self) -> TokenBook:
        """All tokens, as of the last look."""
        return self._follower.tokens

    @property
    def step_credentials(self) -> StepCredentials:
        """Knows the steps of this HAL; whose they are, and whether they live, the leader says."""
        follower = self._follower
        return StepCredentials(lambda: follower.instance, lambda: follower.step_secret, None)

    def note_use(self, token: Token) -> None:
        """Nothing: the leader notes the use when the request is passed on."""


class FollowerApp:
    """An ASGI application, to be wrapped by the guard."""

    def __init__(
        self, follower: Follower, runtime: Runtime, secret: str, rest: str, metrics: MetricsBook, slow_facts: SlowFacts
    ) -> None:
        """
        Args:
            metrics: those of this process.
            rest: where people reach this controller from elsewhere.
            secret: by which the leader knows this controller (see `presence`).
        """
        self.tokens = FollowerTokens(follower)
        self.metrics = metrics
        self._secret = secret
        self._follower = follower
        self._runtime = runtime
        api = FollowerApi(follower, runtime, rest, metrics, slow_facts)
        self._own = OWN_ROUTES.serve(api, runtime, check_path=PathOwnership(api).check)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        raw = cast("dict[str, Any]", scope)
        visit: Visit = raw["state"]["visit"]
        if raw["method"] == "GET" and is_own(raw["path"]) and not visit.identity.step:
            if not _asks_for_others(raw, visit):

                async def sent(message: Any) -> None:
                    if not visit.not_own:
                        await send(message)

                await self._own(scope, receive, sent)
                if not visit.not_own:
                    return
            # Whether it was delegated to the caller is the leader's to say.
            visit.not_own = False
        started = False

        async def noted(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            leader, over = self._follower.leader, self._follower.over
            if leader is None or not leader.rest or leader.left_ms <= 0:
                raise NoLeaderError("this controller is a follower, and there is no leader at the moment", hint=WAIT)
            authority = authority_file(self._runtime.paths.authority)
            addresses = leader.rest.split()
            await forward(addresses, self._secret, authority, visit.identity, over, scope, receive, noted)
        except HALError as error:
            if started:
                raise
            problem = problem_of(error)
            headers = [(b"content-type", PROBLEM_JSON.encode()), (b"retry-after", b"1")]
            await send({"type": "http.response.start", "status": problem.status, "headers": headers})
            await send({"type": "http.response.body", "body": msgspec.json.encode(problem), "more_body": False})


def _asks_for_others(raw: dict[str, Any], visit: Visit) -> bool:
    """A listing of an account or a queue, by somebody who has rights to some of them at most."""
    query = raw.get("query_string") or b""
    return visit.identity.role is Role.USER and (b"account=" in query or b"queue=" in query)
