"""Which CPUs steps of a node may have for themselves, and the claim to bind those of the machine."""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Final

from hal.core.model.node_config import BIND_AUTO, BIND_NONE
from hal.daemons.agent.keeper.cpu_sets import MILLI, CpuSets
from hal.runtime.cpu_topology import read_topology

ROOTS_CLAIM: Final = "/run/hal-cpus.lock"
USERS_CLAIM: Final = "\0hal-cpus-of-this-machine"

_claims: list[int | socket.socket] = []
"""Held until this process ends."""


def cpus_to_bind(words: str, cpu_milli: int) -> tuple[CpuSets | None, str]:
    """Return the CPUs that steps of this node may have for themselves, and a note for its log.

    Args:
        words: `bind` of its section.
        cpu_milli: the node's capacity.
    """
    cpus = os.sched_getaffinity(0)
    if words == BIND_NONE or (words == BIND_AUTO and cpu_milli != len(cpus) * MILLI):
        return None, ""
    if cpu_milli > len(cpus) * MILLI:
        note = f"steps are not bound to CPUs: the node has {cpu_milli / MILLI:g} cpu and this machine {len(cpus)}"
        return None, note
    if words == BIND_AUTO:
        claim = claim_cpus()
        if claim is None:
            return None, 'steps are not bound to CPUs: another node on this machine binds its own (node.bind = "cpus")'
        _claims.append(claim)
    return CpuSets(read_topology(cpus)), ""


def claim_cpus() -> int | socket.socket | None:
    """Claim to be the one keeper that binds all CPUs of this machine, as long as this process holds what is returned;
    None: another does. Root's claim and those of other users do not know of each other."""
    if os.geteuid() == 0:
        try:
            fd = os.open(ROOTS_CLAIM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        claim.bind(USERS_CLAIM)
    except OSError:
        claim.close()
        return None
    return claim
