"""Finds the HAL to talk to: in what is given, the environment, a login and the homes of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hal.client.addresses.address import ANY_HOSTS, SOCKET_NAME, Address
from hal.client.addresses.endpoints import Endpoint, read_endpoints
from hal.client.addresses.login import Login, read_login
from hal.client.addresses.server_identity import ROOT_UID, is_loopback
from hal.core.model.errors import ConflictError, DeniedError, SpecError
from hal.runtime.home import Home, find_home
from hal.runtime.regular_files import NotRegularError, read_regular

URL_VARIABLE = "HAL_URL"
HOME_VARIABLE = "HAL_HOME"
TOKEN_VARIABLE = "HAL_TOKEN"
FINGERPRINT_VARIABLE = "HAL_FINGERPRINT"
PLAIN_VARIABLE = "HAL_PLAIN"
MAX_FILE_BYTES: Final = 1 << 20
NODE_VARIABLE = "HAL_NODE"
STEP_TOKEN_VARIABLE = "HAL_STEP_TOKEN"
"""In the environment of a step: with it, `hal` there acts for the job's submitter."""
STEP_URL_VARIABLE = "HAL_STEP_URL"
"""There, too: where HAL can be reached from other machines, if it can."""
STEP_FINGERPRINT_VARIABLE = "HAL_STEP_FINGERPRINT"
STEP_SOCKET_VARIABLE = "HAL_STEP_SOCKET"
"""There, too, where steps run as their users: the socket that they may reach, on the controller's machine."""


def find_address(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    *,
    plain: bool = False,
) -> Address:
    """Find the HAL to talk to: what is given, else $HAL_URL, else $HAL_HOME, else the login, else the default home.

    Args:
        home: its HAL_HOME on this machine.
        url: `https://host:port`, several of one HAL separated by commas, or `unix:///path/of/api.sock`.
        token: bearer token for URLs; default $HAL_TOKEN, else that of the login, else the `token` file in
            the home directory where the URLs are those of its own HAL. Without one, a Unix socket takes whom the kernel
            names.
        fingerprint: of the HAL's own authority, for https; default $HAL_FINGERPRINT, else what `hal login` kept for
            them, else the authority in the home directory; without any the authorities of this machine are asked.
        plain: send it without TLS to any machine and to whoever answers there; default $HAL_PLAIN, else what
            `hal login` kept for them.
    Raises:
        SpecError: home and URL are given, or what is given is malformed.
    """
    if home is not None and url is not None:
        raise SpecError("home and url cannot be combined", hint="give one of them")
    if home is None and url is None:
        url = os.environ.get(URL_VARIABLE) or None
        if url is None and not os.environ.get(HOME_VARIABLE) and (kept := read_login()) is not None:
            url = kept.url
    base = find_home(home)
    if url is None:
        return _of_home(base)
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path:
        given = token or os.environ.get(TOKEN_VARIABLE, "")
        return Address(socket_path=parts.path, token=given, served_by=_served_by(url), by_token=bool(given))
    endpoints = read_endpoints(url)
    login = _login_for(endpoints)
    if login is not None and login.refresh and not token and TOKEN_VARIABLE not in os.environ:
        from hal.client.login_renewal import renewed

        login = renewed(login)
    authority, fingerprint = _authority(base, endpoints, login, fingerprint)
    return Address(
        endpoints=endpoints,
        token=token or _token(base, login, endpoints, authority, fingerprint),
        authority=authority,
        fingerprint=fingerprint,
        plain=plain or _flag(PLAIN_VARIABLE) or (login is not None and login.plain),
        served_by=None if login is None else login.served_by,
    )


def _of_home(home: Home) -> Address:
    """The HAL of that home; inside a step of it, with the step's token, and from another machine over TLS."""
    token, named, node = (os.environ.get(name) for name in (STEP_TOKEN_VARIABLE, HOME_VARIABLE, NODE_VARIABLE))
    if not token or not named or find_home(named).root != home.root:
        return Address(home=home)
    url, reached = os.environ.get(STEP_URL_VARIABLE), os.environ.get(STEP_SOCKET_VARIABLE)
    try:
        if not node or not (home.nodes_dir / node).is_dir():
            return Address(home=home)  # a HAL of the job's own
        directory = home.known_socket_dir()
    except PermissionError:  # the step runs as its user, and HAL's directories are root's
        directory = None
        if reached and os.path.exists(reached):
            return Address(socket_path=reached, token=token, served_by=ROOT_UID)
    if (directory is not None and (directory / SOCKET_NAME).exists()) or _exists(home.controller_pid):
        return Address(home=home, token=token)
    if url and (endpoints := read_endpoints(url)) and all(endpoint.tls for endpoint in endpoints):
        return Address(endpoints=endpoints, token=token, fingerprint=os.environ.get(STEP_FINGERPRINT_VARIABLE, ""))
    return Address(home=home, token=token, away=True)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _served_by(url: str) -> int | None:
    """Who served that socket when it was logged in at."""
    try:
        kept = read_login()
    except (ConflictError, DeniedError):  # nothing of it is needed here
        return None
    return kept.served_by if kept is not None and kept.url == url else None


def _login_for(endpoints: tuple[Endpoint, ...]) -> Login | None:
    """What was kept for these controllers: it is shown to no other one."""
    kept = read_login()
    if kept is None or kept.url.startswith("unix:"):
        return None
    return kept if set(endpoints) <= set(read_endpoints(kept.url)) else None


def _token(home: Home, login: Login | None, endpoints: tuple[Endpoint, ...], authority: str, fingerprint: str) -> str:
    if TOKEN_VARIABLE in os.environ:
        return os.environ[TOKEN_VARIABLE]
    if login is not None and login.token:
        return login.token
    return _text(home.token) if _is_of(home, endpoints, authority, fingerprint) else ""


def _is_of(home: Home, endpoints: tuple[Endpoint, ...], authority: str, fingerprint: str) -> bool:
    """Whether only the HAL of this home can answer there: its token is for nobody else.

    Over TLS its authority says so, wherever that is; without it, the port that its controller serves on this machine.
    """
    if all(endpoint.tls for endpoint in endpoints):
        own = _text(home.authority / "authority.pem")
        if fingerprint and own:
            from hal.client.addresses.trust import fingerprint_of

            return fingerprint_of(own) == fingerprint
        return bool(own) and authority == own
    served = home.served_tcp()
    return served is not None and all(_serves(served, endpoint) for endpoint in endpoints)


def _serves(served: tuple[str, int], endpoint: Endpoint) -> bool:
    host, port = served
    if endpoint.port != port or not is_loopback(endpoint.host):
        return False
    return (
        endpoint.host in (host, "localhost")
        or host in ANY_HOSTS
        or (host == "localhost" and is_loopback(endpoint.host))
    )


def _authority(
    home: Home, endpoints: tuple[Endpoint, ...], login: Login | None, fingerprint: str | None
) -> tuple[str, str]:
    """Its certificate, and its fingerprint where that is all that is known; neither: those of this machine count."""
    if not any(endpoint.tls for endpoint in endpoints):
        return "", ""
    told = fingerprint or os.environ.get(FINGERPRINT_VARIABLE)
    if told:
        from hal.client.addresses.trust import read_fingerprint

        return "", read_fingerprint(told)
    if login is not None:
        return login.authority, ""
    return _text(home.authority / "authority.pem"), ""


def _text(file: Path) -> str:
    try:
        return read_regular(file, MAX_FILE_BYTES, follow=True).decode().strip()
    except (FileNotFoundError, PermissionError, NotADirectoryError, NotRegularError):
        return ""
