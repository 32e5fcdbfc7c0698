"""Other local users: the kernel says who they are, hal.toml what they may; the private socket is not theirs."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import httpx
import pytest

from hal.core.model import DeniedError, NotFoundError, SpecError
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.api.table import RIGHTS
from hal.daemons.controller.config import Config, read_config
from hal.rest.rights import Role
from hal.rest.server.listeners import user_name
from hal.runtime.sockets import bind_public
from tests.daemons.controller.access.people import make_token, person
from tests.daemons.controller.running import LIMIT_S, Running, on_controller

ALICE, BOB = 54_321, 54_322
"""User ids without names: they go by their numbers."""
SYS_SETRESUID = 117

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or os.uname().machine != "x86_64", reason="becomes other users: needs root"
)


def connected(path: Path, uid: int) -> socket.socket:
    """A connection made by that user: one thread alone changes who it is (the system call, not the C library's)."""
    made: list[socket.socket | OSError] = []

    def dial() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.syscall(SYS_SETRESUID, -1, uid, -1) == 0
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.settimeout(LIMIT_S)
        try:
            one.connect(str(path))
            made.append(one)
        except OSError as error:
            one.close()
            made.append(error)

    thread = threading.Thread(target=dial)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def asked(path: Path, uid: int, request: str) -> tuple[int, str]:
    """Status and body of the answer to one request."""
    with connected(path, uid) as one:
        one.sendall(f"{request} HTTP/1.1\r\nHost: hal\r\nConnection: close\r\n\r\n".encode())
        data = b"".join(iter(lambda: one.recv(65_536), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@as_root
def test_other_local_users_come_in_with_the_role_that_hal_toml_gives(
    hal_home: Path, request: pytest.FixtureRequest
) -> None:
    """Alice is an operator, bob nobody: his request is refused with whom to ask; neither reaches the private socket."""
    door = Path(tempfile.mkdtemp(prefix="hal-door-"))
    request.addfinalizer(lambda: shutil.rmtree(door))
    door.chmod(0o755)
    public = door / "api.sock"
    config = Config(access=AccessSection(socket=str(public), operators=(str(ALICE),)))

    async def body(hal: Running) -> None:
        run = hal.runtime.run_blocking
        status, text = await run(lambda: asked(public, ALICE, "GET /v1/whoami"))
        assert status == 200, text
        assert f'"user":"{ALICE}","role":"operator","peer":"uid {ALICE}"' in text
        status, text = await run(lambda: asked(public, BOB, "GET /v1/jobs"))
        assert (status, "[access] in hal.toml" in text) == (403, True)
        status, text = await run(lambda: asked(public, os.geteuid(), "GET /v1/whoami"))
        assert '"role":"admin"' in text
        with pytest.raises(PermissionError):
            await run(lambda: asked(hal.runtime.paths.api_socket(), ALICE, "GET /v1/jobs"))

    on_controller(hal_home, body, config)


def test_a_public_socket_lies_where_nobody_else_can_put_one(tmp_path: Path) -> None:
    """A directory that others may write to, or that is not there, is refused with what to do; a good one is open."""
    with pytest.raises(DeniedError, match="written to by others"):
        bind_public(Path("/tmp/hal-public-test.sock"))
    with pytest.raises(NotFoundError, match="does not exist"):
        bind_public(tmp_path / "none" / "api.sock")
    with bind_public(tmp_path / "api.sock"):
        assert (tmp_path / "api.sock").stat().st_mode & 0o777 == 0o666


def test_hal_toml_names_who_is_what() -> None:
    """The highest role counts; `*` makes everybody of this machine a user; without it strangers are nobody."""
    access = read_config(
        '[access]\nsocket = "/run/hal/api.sock"\nusers = ["*"]\noperators = ["a"]\nadmins = ["a", "b"]\n'
    ).access
    assert [access.role_of(name) for name in ("a", "b", "c")] == [Role.ADMIN, Role.ADMIN, Role.USER]
    assert AccessSection(operators=("a",)).role_of("c") is None
    for wrong in ('socket = "x"', 'users = ["a b"]', 'admins = ["*"]', "max_token_days = 0", 'people = ["a"]'):
        with pytest.raises(SpecError, match=r"hal\.toml: "):
            read_config(f"[access]\n{wrong}\n")


def test_on_the_private_socket_the_owner_is_admin(hal_home: Path) -> None:
    """The identity is the kernel's, whatever token is shown beside it."""

    async def body(hal: Running) -> None:
        answer: httpx.Response = await hal.http.get("/v1/whoami", headers={"Authorization": "Bearer hal_x_y"})
        who = answer.json()
        assert (who["user"], who["role"], who["token"]) == (user_name(os.geteuid()), "admin", "")

    on_controller(hal_home, body)


def test_a_daemon_asks_over_the_private_socket_who_a_token_is(hal_home: Path) -> None:
    """With `HAL-Identify-By: token` the token counts, not the process that asks; 401 for none and for a wrong one."""

    async def body(hal: Running) -> None:
        made = await make_token(hal, "alice", role="operator", queues=["short"])
        by_token = {"HAL-Identify-By": "token"}
        shown = {"Authorization": f"Bearer {made['secret']}"}
        who = (await hal.http.get("/v1/whoami", headers={**by_token, **shown})).json()
        assert (who["user"], who["role"], who["queues"], who["expires_ms"]) == (
            "alice",
            "operator",
            ["short"],
            made["token"]["expires_ms"],
        )
        for headers in (by_token, {**by_token, "Authorization": "Bearer hal_x_y"}):
            assert (await hal.http.get("/v1/whoami", headers=headers)).status_code == 401

    on_controller(hal_home, body)


def test_whoami_tells_what_the_caller_may_do(hal_home: Path) -> None:
    """By operation, as the rights are enforced: a narrowed admin's token has its role about jobs, else a user's."""

    async def body(hal: Running) -> None:
        async with person(hal, "alice", role="admin", queues=["short"]) as alice:
            assert (await alice.get("/v1/whoami")).json()["rights"] == {}
            rights = (await alice.get("/v1/whoami?rights=1")).json()["rights"]
        assert set(rights) == set(RIGHTS)
        assert (rights["GET /v1/jobs"], rights["POST /v1/api-tokens"], rights["GET /v1/nodes"]) == (
            "all",
            "none",
            "all",
        )

    on_controller(hal_home, body)
