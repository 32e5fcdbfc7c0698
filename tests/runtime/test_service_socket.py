"""Asking a service on a real Unix socket: one line each way, and nobody else in its place."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hal.core.model.errors import DeniedError, HALError, TimedOutError, UnreachableError
from hal.runtime.service_socket import ask_service

ANSWER = b'{"state":"ready"}\n'
LONG_MS = 30_000
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a service may be: private, and its path longer than a socket's address can be."""
    made = tmp_path / ("long" * 30) / "gates"
    made.mkdir(parents=True, mode=0o700)
    return made


@asynccontextmanager
async def served(path: Path, serve: Serve) -> AsyncIterator[None]:
    """A service on that socket, bound from inside of its directory."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        server = await asyncio.start_unix_server(serve, path.name)  # type: ignore[arg-type]
    finally:
        os.chdir(before)
    async with server:
        yield


def asked(path: Path, serve: Serve, *, timeout_ms: int = LONG_MS, most: int = 100) -> bytes:
    async def ask() -> bytes:
        async with served(path, serve):
            return await ask_service(path, b"hello\n", timeout_ms=timeout_ms, most=most)

    return asyncio.run(ask())


def test_a_line_is_answered_with_a_line(directory: Path) -> None:
    """In pieces, with more behind it that nobody asked for; the path is longer than an address may be."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"hello\n"
        for part in (ANSWER[:3], ANSWER[3:], b"more\n"):
            writer.write(part)
            await writer.drain()

    assert asked(directory / "stage.sock", serve) == ANSWER


def test_a_line_that_the_kernel_does_not_take_at_once_is_sent_as_it_is_read(directory: Path) -> None:
    """Two megabytes: more than a socket holds."""
    line = b"x" * (2 << 20) + b"\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read = await reader.readexactly(len(line))
        writer.write(b"%d\n" % len(read.rstrip()))

    async def ask() -> bytes:
        async with served(directory / "stage.sock", serve):
            return await ask_service(directory / "stage.sock", line, timeout_ms=LONG_MS, most=100)

    assert asyncio.run(ask()) == b"2097152\n"


def test_a_line_that_nobody_reads_is_given_up_in_time(directory: Path) -> None:
    """As long; the service does not read it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.wait()

    async def ask() -> None:
        async with served(directory / "stage.sock", serve):
            with pytest.raises(TimedOutError, match="did not answer within 50 ms"):
                await ask_service(directory / "stage.sock", b"x" * (2 << 20), timeout_ms=50, most=100)
            left.set()

    left = asyncio.Event()
    asyncio.run(ask())


def test_an_answer_without_an_end_is_cut(directory: Path) -> None:
    """One byte more than is wanted, so that the caller sees that it was too long."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 1_000_000)

    assert asked(directory / "stage.sock", serve, most=100) == b"x" * 101


def test_a_service_that_closes_the_connection_has_answered_nothing(directory: Path) -> None:
    """What came before is returned as it is."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"half")
        await writer.drain()
        writer.close()

    assert asked(directory / "stage.sock", serve) == b"half"


def test_a_service_that_does_not_answer_is_left(directory: Path) -> None:
    """It sees that the connection ends."""
    left: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await left.put(await reader.read())

    async def ask() -> bytes:
        async with served(directory / "stage.sock", serve):
            with pytest.raises(TimedOutError, match="did not answer within 50 ms"):
                await ask_service(directory / "stage.sock", b"hello\n", timeout_ms=50, most=100)
            return await left.get()

    assert asyncio.run(asyncio.wait_for(ask(), LONG_MS / 1000)) == b""


def test_a_service_that_accepts_nothing_now_is_asked_when_it_does(directory: Path) -> None:
    """Its backlog is full; the kernel does not queue another connection."""
    path = directory / "stage.sock"

    async def ask() -> bytes:
        listener = socket.socket(socket.AF_UNIX)
        before = os.getcwd()
        os.chdir(directory)
        try:
            listener.bind(path.name)
            listener.listen(0)
            first = socket.socket(socket.AF_UNIX)
            first.connect(path.name)
        finally:
            os.chdir(before)
        asking = asyncio.ensure_future(ask_service(path, b"hello\n", timeout_ms=LONG_MS, most=100))
        await asyncio.sleep(0)
        with listener, first:
            listener.accept()[0].close()
            served_one, _ = await asyncio.get_running_loop().run_in_executor(None, listener.accept)
            with served_one:
                served_one.sendall(ANSWER)
                return await asking

    assert asyncio.run(ask()) == ANSWER


# ── who may be in its place ───────────────────────────────────────────────────────────────────────────────────────


def refused(path: Path) -> HALError:
    with pytest.raises(HALError) as error:
        asyncio.run(ask_service(path, b"hello\n", timeout_ms=LONG_MS, most=100))
    return error.value


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        made.bind(path.name)
    finally:
        os.chdir(before)
    made.listen()
    return made


def test_nobody_is_there(directory: Path) -> None:
    """No directory, no socket, a socket that nobody listens on."""
    assert isinstance(refused(directory / "none" / "stage.sock"), UnreachableError)
    assert isinstance(refused(directory / "stage.sock"), UnreachableError)
    listening(directory / "stage.sock").close()
    assert isinstance(refused(directory / "stage.sock"), UnreachableError)


def test_safety_what_is_no_socket_is_not_asked(directory: Path) -> None:
    """A file, and a link to a socket that is one."""
    (directory / "stage.sock").write_text("")
    assert "is not a socket" in refused(directory / "stage.sock").message
    with listening(directory / "real.sock"):
        (directory / "link.sock").symlink_to(directory / "real.sock")
        assert "is not a socket" in refused(directory / "link.sock").message


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o722])
def test_safety_a_socket_in_a_directory_that_others_may_write_is_not_asked(directory: Path, mode: int) -> None:
    """They could put one of their own there."""
    with listening(directory / "stage.sock"):
        directory.chmod(mode)
        error = refused(directory / "stage.sock")
    assert isinstance(error, DeniedError)
    assert "can be written to by others" in error.message


def test_safety_a_directory_that_is_a_link_is_not_entered(directory: Path) -> None:
    """Whoever made the link chose the service."""
    with listening(directory / "stage.sock"):
        link = directory.parent / "link"
        link.symlink_to(directory)
        assert isinstance(refused(link / "stage.sock"), UnreachableError)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user, which only root may")
@pytest.mark.parametrize("what", ["directory", "socket"])
def test_safety_what_belongs_to_another_user_is_not_asked(directory: Path, what: str) -> None:
    """Neither root nor this user."""
    with listening(directory / "stage.sock"):
        os.chown(directory if what == "directory" else directory / "stage.sock", 12345, 12345)
        error = refused(directory / "stage.sock")
    assert isinstance(error, DeniedError)
    assert "belongs to user id 12345" in error.message


@pytest.mark.skipif(os.geteuid() != 0, reason="serves as another user, which only root can arrange")
def test_safety_a_server_of_another_user_is_not_believed(directory: Path) -> None:
    """The files are right, and who listens is not."""
    path = directory / "stage.sock"
    made = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(directory)
    try:
        made.bind(path.name)
    finally:
        os.chdir(before)
    child = os.fork()
    if child == 0:
        os.setuid(12345)
        made.listen()
        os.kill(os.getpid(), 19)  # stops, listening
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        error = refused(path)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        made.close()
    assert "is served by user id 12345" in error.message
