"""`GET /v1/whoami`: who the caller is to a daemon, until when, and, if asked, what each endpoint gives them.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from msgspec import Struct

from hal.rest.call import Call
from hal.rest.endpoint import FLAG, Endpoint, Param
from hal.rest.enforcement import reach_of
from hal.rest.identity import READING, Identity, Scope
from hal.rest.rights import EVERYBODY, Reach, Role

PATH: Final = "/v1/whoami"


class WhoView(Struct, frozen=True, kw_only=True):
    """The identity of the caller."""

    user: str
    role: Role
    peer: str
    """Where the request came from."""
    token: str
    """Id of the token that was shown; empty: the kernel named the user."""
    expires_ms: int | None
    accounts: tuple[str, ...]
    queues: tuple[str, ...]
    read_only: bool
    job: int = 0
    """The only job for which the caller speaks, with what that has submitted: nothing but its step's token was shown;
    0: for whatever is the user's."""
    instance: str = ""
    """Names this HAL: tokens of its attempts begin with it; empty: not known yet."""
    rights: dict[str, str] = {}
    """With `rights`: `all`, `own` or `none` by operation, `METHOD /path/{template}`."""


def who_view(who: Identity, instance: str = "", rights: dict[str, str] | None = None) -> WhoView:
    """What the caller is shown."""
    return WhoView(
        user=who.user,
        role=who.role,
        peer=who.peer,
        token=who.token,
        expires_ms=who.expires_ms,
        accounts=who.scope.accounts,
        queues=who.scope.queues,
        read_only=who.scope.read_only,
        job=who.only_job,
        instance=instance,
        rights=rights or {},
    )


def identity_of(who: WhoView, peer: str) -> Identity:
    """The identity that a controller has shown, of a caller who came to another daemon from `peer`."""
    scope = Scope(accounts=who.accounts, queues=who.queues, read_only=who.read_only)
    return Identity(
        user=who.user,
        role=who.role,
        peer=peer,
        token=who.token,
        scope=scope,
        expires_ms=who.expires_ms,
        only_job=who.job,
    )


def rights_of(who: Identity, rows: Sequence[Endpoint], for_narrowed: Container[str] = ()) -> dict[str, str]:
    """How far each operation of a table reaches for that identity.

    Args:
        for_narrowed: as for `Rights`.
    """
    found = {}
    for row in rows:
        reach = reach_of(who, row.right, narrowed_too=row.operation in for_narrowed)
        barred = (who.scope.read_only and row.method not in READING) or (who.only_job and not row.for_job_tokens)
        found[row.operation] = (Reach.NONE if barred else reach).name.lower()
    return found


def whoami_row(
    rows: Callable[[], Sequence[Endpoint]],
    instance: Callable[[Any], str],
    for_narrowed: Callable[[], Container[str]] = frozenset,
) -> Endpoint:
    """The row that answers it.

    Args:
        rows, for_narrowed: of the daemon's table.
        instance: names the HAL, by the daemon's API.
    """

    async def who_am_i(api: Any, call: Call) -> object:
        who = call.visit.identity
        rights = rights_of(who, rows(), for_narrowed()) if call.params.flag("rights") else None
        return who_view(who, instance(api), rights)

    return Endpoint(
        method="GET",
        path=PATH,
        handler=who_am_i,
        right=EVERYBODY,
        name="whoAmI",
        tag="access",
        summary="Show the caller's identity: user, role, token, and with `rights` what they may do",
        text="On a Unix socket the kernel names the caller; with `HAL-Identify-By: token`, the token that is shown.",
        params=(Param(name="rights", text="also show how far each operation reaches for the caller", schema=FLAG),),
        result=WhoView,
        for_job_tokens=True,
    )
