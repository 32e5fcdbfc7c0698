"""A login by an OpenID Connect provider: exchanging its token for one of HAL, renewing that before it ends. Blocking.

Several commands may run at once: one renews, the others wait for it and take what it has kept, because a provider may
accept a refresh token only once.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from hal.client.addresses.login import Login, keep_login, login_file, read_login
from hal.core.model.errors import DeniedError, HALError

EARLY_MS: Final = 300_000
"""A token is renewed so long before its end, or a quarter of its life."""
AGAIN_MS: Final = 30_000
"""How long nothing is tried after that has failed."""


def exchanged(login: Login, token: str) -> Login:
    """The login with a token of its HAL, got for one of the provider.

    Raises:
        DeniedError: the HAL does not believe it, or the person has no role there.
        UnreachableError: no controller answers.
    """
    from hal.client.addresses.address import Address
    from hal.client.addresses.endpoints import read_endpoints
    from hal.client.rest import access_calls
    from hal.client.transport.http import Connections

    address = Address(
        endpoints=read_endpoints(login.url), authority=login.authority, plain=login.plain, served_by=login.served_by
    )
    call = access_calls.log_in(token)
    connections = Connections(address, reconnect_s=0.0)
    try:
        made = call.read(connections.send(call.request))
    finally:
        connections.close()
    life_ms = made.token.expires_ms - made.token.created_ms
    ends_ms = made.token.expires_ms
    return replace(login, token=made.secret, expires_ms=ends_ms, renew_ms=ends_ms - min(EARLY_MS, life_ms // 4))


def is_due(login: Login, now_ms: int) -> bool:
    """Whether its token is to be renewed now."""
    return bool(login.refresh) and now_ms >= login.renew_ms


def renewed(login: Login) -> Login:
    """The login with a token that lives, if the provider still agrees; else as it is, as long as that may work.

    Raises:
        DeniedError: the token has ended, and the person has to log in again.
    """
    if not is_due(login, _now_ms()):
        return login
    with _alone():
        login = read_login() or login
        if not is_due(login, _now_ms()):
            return login
        try:
            return _renewed(login)
        except HALError as error:
            if _now_ms() < login.expires_ms:
                # Not with each command: the provider may take its time to fail.
                login = replace(read_login() or login, renew_ms=_now_ms() + AGAIN_MS)
                keep_login(login)
                return login
            if isinstance(error, DeniedError):
                raise DeniedError(
                    f"your login at {login.url} has ended: {error.message}", hint=f"log in again: hal login {login.url}"
                ) from error
            raise


def _renewed(login: Login) -> Login:
    from hal.client.oidc import find_provider, refresh

    granted = refresh(find_provider(login.issuer, login.client_id, login.token_kind), login.refresh)
    # Kept before anything else can fail: the former one may be worth nothing by now.
    login = replace(login, refresh=granted.refresh)
    keep_login(login)
    login = exchanged(login, granted.token)
    keep_login(login)
    return login


@contextmanager
def _alone() -> Iterator[None]:
    """Only one process of this user is inside."""
    lock = login_file().with_name("login.lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
