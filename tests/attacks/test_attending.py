"""Interactive jobs of users on a HAL of root: they run as their user, and only the owner and admins attach to them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hal.core.model import DeniedError, HALError, NotFoundError
from tests.attacks.other_user import as_user
from tests.attacks.stream_site import Site


@pytest.mark.parametrize(("who", "error"), [("user", NotFoundError), ("operator", DeniedError)])
def test_nobody_attaches_to_another_users_job(site: Site, who: str, error: type[HALError]) -> None:
    """Who does could type into it."""
    with pytest.raises(error):
        site.open(site.connections(site.bob.name, who), site.attended, kind="attach")


@pytest.mark.parametrize("who", ["owner", "admin"])
def test_the_owner_and_who_acts_for_them_attach(site: Site, who: str) -> None:
    """And read what its program has written: it is the owner's."""
    connections = site.connections(site.alice.name) if who == "owner" else site.connections(site.bob.name, "admin")
    stream = site.open(connections, site.attended, kind="attach")
    text = b"".join(body for _, body in stream.early)
    with socket.socket(fileno=os.dup(stream.link.fileno())) as sock:
        sock.settimeout(60)
        while site.alice.name.encode() not in text:
            piece = sock.recv(1 << 12)
            assert piece, text
            text += piece
    stream.link.close()


def test_the_holder_of_a_terminal_lets_no_other_user_in(site: Site) -> None:
    """Its socket has a name that anybody can find (/proc/net/unix); it looks at who comes."""
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@hal-step-" in line]
    assert names

    def knock() -> list[bytes]:
        found = []
        for name in names:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(60)
                sock.connect("\0" + name[1:])
                found.append(sock.recv(16))
        return found

    assert set(as_user(site.bob.uid, knock)) == {b""}
