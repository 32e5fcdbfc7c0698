"""The machine on which a log is replayed, how a job of p processors is placed on it, and the names of the policies.

Pure; imports nothing heavy, so that the command line can check its arguments before it loads the engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

POLICIES: Final = ("fcfs", "easy", "easy-sjbf", "conservative")
"""Policies under which a log can be replayed, by the names that people type; and `top-K` (see `reservations_of`)."""
_TOP_K: Final = re.compile("top-([1-9][0-9]{0,5})")
"""EASY with K protected jobs, up to 999,999 of them."""


def reservations_of(policy: str) -> int | None:
    """Return K if the policy is `top-K` (top-2: the first two waiting jobs hold reservations), None for other names."""
    found = _TOP_K.fullmatch(policy)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class Machine:
    """`nodes` equal nodes of `cpus_per_node` processors; one node is 'the pool'."""

    nodes: int
    cpus_per_node: int

    @classmethod
    def pool(cls, procs: int) -> Machine:
        """Return one node with all processors: any free processors suit any job."""
        return cls(nodes=1, cpus_per_node=procs)

    @property
    def procs(self) -> int:
        """All processors."""
        return self.nodes * self.cpus_per_node

    def shape_of(self, procs: int) -> tuple[int, int]:
        """Return (nodes, processors on each) of a job: on one node if it fits there, else whole nodes, rounded up.

        A job of 10 processors on nodes of 4 holds three nodes and uses 10 of their 12 processors.
        """
        if procs <= self.cpus_per_node:
            return 1, procs
        return -(-procs // self.cpus_per_node), self.cpus_per_node
