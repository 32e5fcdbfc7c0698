"""A HAL of root with running jobs of a user's, for attacks on what enters steps; its users can read its program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hal
from hal.client.address_lookup import find_address
from hal.client.rest.access_calls import create_token
from hal.client.step_streams import StepStream, open_stream
from hal.client.transport.http import Connections
from tests.attacks.test_terminals import free_port
from tests.e2e.conftest import LiveHal, new_home, until
from tests.unix_users import UnixUser, unix_users

NEEDED = (Path(sys.base_prefix), Path(sys.prefix), Path(hal.__file__).parent)
"""What the holder of a step's terminal is run with: its user must be able to read it."""


def closed(place: Path) -> Path | None:
    """The first directory above it through which others may not pass; None: they may reach it."""
    above = [*reversed(place.resolve().parents), place.resolve()]
    return next((one for one in above if not one.stat().st_mode & 0o001), None)


def opening(scratch: Path) -> str:
    """A script of shell that lets others reach what is needed, in a mount namespace of its own: in place of a
    directory that keeps them out comes an empty one, with what is needed in it."""
    lines = []
    for number, place in enumerate(NEEDED):
        if (wall := closed(place)) is not None:
            lines += [f"mkdir -p {scratch}/{number}", f"mount --bind {place.resolve()} {scratch}/{number}"]
            lines += [f"mountpoint -q {wall} || mount -t tmpfs -o mode=755 none {wall}"]
    for number, place in enumerate(NEEDED):
        if closed(place) is not None:
            lines += [f"mkdir -p {place.resolve()}", f"mount --bind {scratch}/{number} {place.resolve()}"]
    return "\n".join([*lines, 'exec "$@"'])


class OpenHal(LiveHal):
    """One that is installed where its users can read it, as it should be."""

    def command(self, *args: object) -> list[str]:
        """In that namespace."""
        return ["unshare", "--mount", "sh", "-ec", opening(self.root.parent / "open"), "sh", *super().command(*args)]


class Site(NamedTuple):
    """A HAL of root on two nodes, with running jobs of alice's, and the ways in."""

    hal: LiveHal
    alice: UnixUser
    bob: UnixUser
    job: int
    allocation: int
    """On both nodes; its command runs on the first."""
    attended: int
    """An interactive one, to which nobody is attached."""

    def connections(self, user: str, role: str = "user") -> Connections:
        """As somebody with a token, on this machine."""
        with self.hal.client() as client:
            made = client.call(create_token({"user": user, "role": role}))
        return self.with_token(made.secret)

    def with_token(self, token: str) -> Connections:
        """As whoever has that token."""
        served = self.hal.home.served_tcp()
        assert served is not None
        return Connections(find_address(url=f"http://{served[0]}:{served[1]}", token=token, plain=True))

    def open(self, connections: Connections, job: int | None = None, **asked: Any) -> StepStream:
        """A stream from this machine to the step of alice's, or of another job."""
        return open_stream(connections, job or self.job, **{"kind": "exec", "here": True, **asked})


@contextmanager
def stream_site() -> Iterator[Site]:
    """All of it, for as long as the block."""
    live = OpenHal(new_home())
    live.environment["HAL_RUN_AS_OWNER"] = "0"
    with unix_users(2) as (alice, bob):
        try:
            live.up("--nodes", "2", "--cpus", "8", "--tcp", str(free_port()))
            with live.client() as client:
                attended = {"interactive": "pipes", "on_hangup": "continue"}
                made = [
                    client.submit(["sleep", "6000"], user=alice.name),
                    client.submit(["sleep", "6000"], user=alice.name, nodes=2, first_node=True),
                    client.submit({"command": ["sh", "-c", "id -un; exec cat"], "user": alice.name, **attended}),
                ]
                for job in made:
                    until(lambda job=job: job.refresh().state == "running", f"it did not run: {job.info.reason}")  # type: ignore[misc]
            yield Site(live, alice, bob, *(int(job.id) for job in made))
        finally:
            live.remove()
