"""A mail server and a web server on loopback, small and real: sockets, SMTP and HTTP as their RFCs have them."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Final

import msgspec

LINE_S: Final = 30.0


class MailServer:
    """Takes mail from whoever says hello.

    With a context it offers STARTTLS (or begins with TLS, `from_start`); with a login it takes mail only after that,
    and the login only over TLS.
    """

    def __init__(
        self, context: ssl.SSLContext | None = None, *, from_start: bool = False, login: tuple[str, str] | None = None
    ) -> None:
        self.context = context
        self.from_start = from_start
        self.login = login
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.refuse: dict[str, str] = {}
        """By recipient, what is answered instead of 250."""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""

        async def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())
            await writer.drain()

        await say("220 mail.test ESMTP")
        to: list[str] = []
        encrypted = self.from_start
        known = self.login is None
        while line := (await asyncio.wait_for(reader.readline(), LINE_S)).decode():
            verb, _, rest = line.strip().partition(" ")
            if verb.upper() in ("EHLO", "HELO"):
                for offer in ("mail.test", *self._offers(encrypted=encrypted)):
                    await say(f"250-{offer}")
                await say("250 8BITMIME")
            elif verb.upper() == "STARTTLS" and self.context is not None and not encrypted:
                await say("220 go ahead")
                await writer.start_tls(self.context)
                encrypted = True
            elif verb.upper() == "AUTH" and self.login is not None and encrypted:
                told = base64.b64decode(rest.partition(" ")[2]).decode().split("\0")
                known = tuple(told[1:]) == self.login
                await say("235 welcome" if known else "535 no such user or password")
            elif verb.upper() == "MAIL" and not known:
                await say("530 log in first")
            elif verb.upper() == "RCPT":
                name = rest.partition("<")[2].partition(">")[0]
                answer = self.refuse.get(name, "250 OK")
                if answer.startswith("250"):
                    to.append(name)
                await say(answer)
            elif verb.upper() == "DATA":
                await say("354 end with .")
                body = b""
                while (piece := await reader.readline()) != b".\r\n":
                    body += piece.removeprefix(b".") if piece.startswith(b"..") else piece
                found = message_from_bytes(body, policy=policy.default)
                assert isinstance(found, EmailMessage)
                self.mails.append(found)
                self.recipients += to
                to = []
                await say("250 taken")
            elif verb.upper() == "QUIT":
                await say("221 bye")
                break
            else:
                await say("250 OK")
        writer.close()

    def _offers(self, *, encrypted: bool) -> list[str]:
        """What a hello is answered with."""
        if not encrypted:
            return [] if self.context is None else ["STARTTLS"]
        return [] if self.login is None else ["AUTH PLAIN"]


class WebServer:
    """Answers every request with `status`; what was posted is in `bodies`. With a context over TLS."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.from_start = True
        self.bodies: list[Any] = []
        self.heads: list[str] = []
        self.statuses: list[int] = []
        """What is answered first; then 204."""
        self.location = ""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'' if self.context is None else 's'}://localhost:{self.port}/hook?token=hush"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length:")[2].partition("\r\n")[0] or 0)
        self.heads.append(head)
        self.bodies.append(msgspec.json.decode(await reader.readexactly(length)))
        status = self.statuses.pop(0) if self.statuses else 204
        moved = f"Location: {self.location}\r\n" if self.location else ""
        writer.write(f"HTTP/1.1 {status} X\r\n{moved}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@contextmanager
def served(*servers: MailServer | WebServer) -> Iterator[None]:
    """They listen, on a loop of their own beside the test."""
    up = threading.Event()
    stop: list[Any] = []

    async def main() -> None:
        over = asyncio.Event()
        stop.extend((asyncio.get_running_loop().call_soon_threadsafe, over.set))
        async with listening(*servers):
            up.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert up.wait(LINE_S)
    try:
        yield
    finally:
        call, over = stop
        call(over)
        thread.join()


@asynccontextmanager
async def listening(*servers: MailServer | WebServer) -> AsyncIterator[None]:
    """They listen on ports of loopback."""
    made = []
    for one in servers:
        context = one.context if one.from_start else None
        server = await asyncio.start_server(one.serve, "127.0.0.1", 0, ssl=context)
        one.port = server.sockets[0].getsockname()[1]
        made.append(server)
    try:
        yield
    finally:
        for server in made:
            server.close()
