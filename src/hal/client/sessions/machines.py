"""Sessions over several machines: how their processes get the session's file, and learn where its broker listens.

The files are secrets of the jobs, which HAL delivers to the nodes that run them and to nobody else. The port is one
that HAL gives to the broker's job, as to any service. Loaded for HALs of several machines only.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hal.client.sessions.job_labels import SESSION_LABEL
from hal.core.model.errors import ConflictError, HALError, NotFoundError, TimedOutError, UnreachableError
from hal.runtime.exchange import MEMORY
from hal.runtime.exchange import PREFIX as EXCHANGE
from hal.runtime.privacy import make_private
from hal.runtime.session_certificates import over_network
from hal.runtime.session_file import (
    ANY_HOST,
    IN_SECRETS,
    OTHERS_FILE,
    TCP,
    UNIX,
    SessionFile,
    reached_at,
    read_session_file,
    shards_at,
    write_session_file,
)

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.sync_client import Client

PORT: Final = "tasks"
"""Of the broker's job."""
SERVICE: Final = {"ports": [PORT], "restart": "never"}
LISTEN: Final = f"{TCP}{ANY_HOST}:$HAL_PORT_{PORT.upper()}"
NOWHERE: Final = f"{TCP}127.0.0.1:1"
"""Of a shard that does not run: nobody listens there."""
PREFIX: Final = "hal-session-"
BROKERS: Final = ".broker"
"""The name of the secret for the broker ends with it."""
LEFT_S: Final = 3_600.0
"""Secrets of no session are removed when they are as old as that."""
READ_S: Final = 30.0
LOOK_S: Final = 0.01
MAX_LOOK_S: Final = 0.05


class Spread:
    """The files of one session as secrets of its jobs.

    Attributes:
        name: of the secret with the file of all who dial the broker; that with the broker's ends with `BROKERS`.
        file, brokers_file: where steps find the two.
    """

    def __init__(self, client: Client, name: str = "") -> None:
        """
        Args:
            name: of a session that has them; '': they are made by `store`.
        """
        self._client = client
        self._called(name)

    def _called(self, name: str) -> None:
        self.name = name
        self.file, self.brokers_file = f"{IN_SECRETS}{name}", f"{IN_SECRETS}{name}{BROKERS}"

    def store(
        self, session: SessionFile, *, elsewhere: bool, kept: Path | None = None
    ) -> tuple[SessionFile, SessionFile, dict[str, Any]]:
        """Make certificates, and give HAL the files.

        Args:
            elsewhere: the broker may run on any machine, and gets its file from HAL.
            kept: the directory of a durable session, which keeps both files; if it has them already, so do their
                certificates.
        Returns: the file for who dials, that of the broker, and what the broker's job is told.
        """
        if elsewhere:
            socket = f"{UNIX}{MEMORY / (EXCHANGE + session.id)}/broker.sock"
            session = msgspec.structs.replace(session, listen=(socket,))
        if kept is not None and session.authority and (kept / OTHERS_FILE).exists():
            broker, others = (
                session,
                msgspec.structs.replace(
                    read_session_file(kept / OTHERS_FILE), shapes=session.shapes, collector=session.collector
                ),
            )
        else:
            broker, others = over_network(session, LISTEN, time.time_ns() // 1_000_000)
        if kept is not None:
            make_private(kept)
            write_session_file(kept / OTHERS_FILE, others)
        self._called(f"{PREFIX}{session.id}")
        names = [self.name]
        self._client.set_secret(self.name, msgspec.json.encode(others))
        if elsewhere:
            names.append(f"{self.name}{BROKERS}")
            self._client.set_secret(names[1], msgspec.json.encode(broker))
        service = SERVICE if kept is None else {**SERVICE, "restart": "on-failure"}
        return others, broker, {"secrets": names, "service": service}

    def addresses(self, broker: Job, session: str, timeout: float, count: int) -> list[str]:
        """Wait until the brokers run; returns where each is reached.

        Args:
            session: its name.
            count: how many there are: tasks of that job.
        Raises:
            ConflictError: its job ended.
            TimedOutError: it did not begin in time.
        """
        looked_s, look_s = time.monotonic(), LOOK_S
        deadline_s = looked_s + timeout
        while len(found := addresses_of(self._client, session, broker.id)) < count:
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise TimedOutError(
                    f"the broker of session '{session}' has not begun within {timeout:g} s",
                    hint=f"hal why {broker.id}",
                )
            if now_s - looked_s > 1.0:
                looked_s, info = now_s, broker.refresh()
                if info.state.ended:
                    raise ConflictError(
                        f"the broker of session '{session}' has ended: {info.reason or info.state}",
                        hint=f"hal logs {broker.id}",
                    )
            time.sleep(look_s)
            look_s = min(look_s * 1.2, MAX_LOOK_S)
        return [found[task] for task in range(count)]

    def remove(self) -> None:
        """Remove both, if they are there."""
        for name in (self.name, f"{self.name}{BROKERS}"):
            with contextlib.suppress(HALError):
                self._client.remove_secret(name)

    def remove_left(self, user: str) -> None:
        """Remove those of sessions of this user whose clients died before they could."""
        before_ms = (time.time() - LEFT_S) * 1_000
        left = [one.name for one in self._client.secrets() if one.name.startswith(PREFIX) and one.set_ms < before_ms]
        if not left:
            return
        live = set()
        for job in self._client.jobs(label=SESSION_LABEL, user=user):
            if not job.ended:
                live.add(secret_of(self._client.job(job.id).refresh().spec or {}))
        for name in {name.removesuffix(BROKERS) for name in left} - live:
            Spread(self._client, name).remove()


def addresses_of(client: Client, name: str, broker: str) -> dict[int, str]:
    """Where each broker of a session that runs is reached, by its task.

    Args:
        name: of the session.
        broker: id of its job.
    """
    try:
        found = client.service(name)
    except NotFoundError:
        return {}
    return {
        endpoint.task: f"{TCP}{endpoint.address(PORT)}"
        for endpoint in found.endpoints
        if endpoint.job == broker and PORT in endpoint.ports
    }


def secret_of(spec: Mapping[str, Any]) -> str:
    """The name of the secret that has the session's file, from the spec of one of its jobs; '': it has none."""
    names = [name for name in spec.get("secrets") or () if name.startswith(PREFIX) and not name.endswith(BROKERS)]
    return names[0] if names else ""


def _reached(session: SessionFile, found: Mapping[int, str]) -> SessionFile:
    """The same file, with where its brokers are reached."""
    if not session.shards:
        return reached_at(session, found.get(0, ""))
    return shards_at(session, [found.get(task, NOWHERE) for task in range(session.shards)])


def file_in_step(client: Client, broker: Job, name: str, spec: Mapping[str, Any]) -> SessionFile:
    """Read the session's file where its broker runs, in the broker's own step: only who may enter it can.

    Args:
        name: of the session.
        spec: of the broker's job.
    Raises:
        HALError: the step cannot be entered, or has no such file.
    """
    from hal.client.step_streams import failure_of, open_stream
    from hal.wire.step_streams import END, EXIT, FAIL, OUT, message

    secret = secret_of(spec)
    words = ["sh", "-c", f'exec cat "$HAL_SECRETS_DIR/{secret}"']
    task = min(addresses_of(client, name, broker.id), default=0)
    stream = open_stream(client.connections, int(broker.id), task=task, kind="exec", argv=words)
    data, deadline = bytearray(), time.monotonic() + READ_S
    link = stream.link
    said: list[tuple[int, bytes | memoryview]] = list(stream.early)
    waiting = message(END)
    try:
        while True:
            for kind, body in said:
                if kind == OUT:
                    data += body
                elif kind == FAIL:
                    raise failure_of(bytes(body))
                elif kind == EXIT:
                    session = msgspec.json.decode(bytes(data), type=SessionFile)
                    return _reached(session, addresses_of(client, name, broker.id))
            if waiting:
                waiting = waiting[link.write(memoryview(waiting)) :]
            if not link.pending:
                select.select([link.fileno()], [], [], 1.0)
            found = link.read()
            if found == b"" or time.monotonic() > deadline:
                raise UnreachableError(f"the step of job {broker.id} does not answer")
            said = list(stream.reader.feed(found)) if found else []
    except msgspec.DecodeError as error:
        raise NotFoundError(f"job {broker.id} has no file of a session: {error}") from error
    finally:
        link.close()
