"""The command line that an agent and its keeper share: either can start the other with the same arguments.

Imports little: the keeper stays small.
"""

from __future__ import annotations

import argparse
import os
from typing import Final, NamedTuple

from hal.core.model.errors import SpecError
from hal.core.model.facts import check_domain
from hal.core.model.gpu_slices import offered_gpus
from hal.core.model.node_address import check_node_address
from hal.core.model.node_config import check_labels
from hal.core.model.units import resource_name
from hal.daemons.agent.node_file import declared_here
from hal.runtime.gpus import machine_gpus
from hal.runtime.home import Home, check_node_name
from hal.wire.address import parse_controllers

MAX_PROCESSES: Final = 4_096
"""Processes and threads that a step may have by default."""


class NodeArguments(NamedTuple):
    """The arguments of one node's agent and keeper."""

    home: str
    node: str
    capacity: dict[str, int]
    """By resource name, base units."""
    labels: dict[str, str]
    helpers: int = 0
    """0: one per cpu."""
    lease_ms: int = 60_000
    max_processes: int = MAX_PROCESSES
    """Of each step; 0: the kernel's limit."""
    with_agent: bool = True
    domain: str = ""
    """Location of the machine, from the widest level to the narrowest."""
    address: str = ""
    """Where other machines reach the node; empty: where the controller sees it."""
    controllers: tuple[str, ...] = ()
    """`HOST:PORT` of each controller of another machine; empty: the controller of this home."""
    gpus: tuple[int, ...] | None = None
    """Indexes of the machine's GPUs that are this node's; None: all, if it offers as many."""

    def words(self) -> list[str]:
        """Return the equivalent command line."""
        words = ["--home", self.home, "--node", self.node, "--helpers", str(self.helpers)]
        words += ["--lease-ms", str(self.lease_ms), "--max-processes", str(self.max_processes)]
        for name, amount in self.capacity.items():
            words += ["--resource", f"{name}={amount}"]
        for key, value in self.labels.items():
            words += ["--label", f"{key}={value}"]
        if self.domain:
            words += ["--domain", self.domain]
        if self.address:
            words += ["--address", self.address]
        for address in self.controllers:
            words += ["--controller", address]
        if self.gpus is not None:
            words += ["--gpu", ",".join(map(str, self.gpus))]
        return words if self.with_agent else [*words, "--no-agent"]


def parse_arguments(program: str, argv: list[str]) -> NodeArguments:
    """Parse the command line; defaults come from the machine. Ends the process on invalid arguments."""
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    parser.add_argument("--home", required=True, help="HAL_HOME")
    parser.add_argument("--node", required=True, help="the node's name")
    parser.add_argument(
        "--cpu-milli", type=int, default=0, help="cpu in millicores (default: what this process may use)"
    )
    parser.add_argument("--memory", type=int, default=0, help="memory in bytes (default: the machine's)")
    parser.add_argument("--resource", action="append", default=[], metavar="NAME=AMOUNT", help="in base units")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--domain", default="", metavar="PATH", help="where the machine stands: dc1/rack3")
    parser.add_argument("--address", default="", metavar="HOST", help="where other machines reach the node")
    parser.add_argument("--helpers", type=int, default=0, help="spawning processes (default: one per cpu)")
    parser.add_argument("--lease-ms", type=int, default=60_000, help="oldest lease stamp that a start may carry")
    parser.add_argument("--max-processes", type=int, default=MAX_PROCESSES, help="of each step (0: no limit)")
    parser.add_argument("--no-agent", action="store_true", help="start no agent")
    parser.add_argument(
        "--controller", action="append", default=[], metavar="HOST:PORT", help="of another machine (default: here)"
    )
    parser.add_argument("--gpu", metavar="INDEXES", help="GPUs of this node: 0,1 (default: all)")
    found = parser.parse_args(argv)
    try:
        check_node_name(found.node)
        capacity = {resource_name(name): int(amount) for name, amount in map(_pair, found.resource)}
        labels = check_labels(dict(map(_pair, found.label)), "--label")
        domain = check_domain(found.domain)
        address = check_node_address(found.address)
        addresses = parse_controllers(",".join(found.controller)) if found.controller else ()
        gpus_given = None if found.gpu is None else tuple(int(index) for index in found.gpu.split(",") if index)
        declared = declared_here(Home(found.home).config) if "gpu" not in capacity else ()
    except (ValueError, SpecError) as error:
        parser.error(str(error))
    if found.cpu_milli or "cpu" not in capacity:
        capacity["cpu"] = found.cpu_milli or len(os.sched_getaffinity(0)) * 1000
    if found.memory or "memory" not in capacity:
        capacity["memory"] = found.memory or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if "gpu" not in capacity:
        there = machine_gpus(declared)
        own = offered_gpus(gpu for gpu in there if gpus_given is None or gpu.index in gpus_given)
        capacity = {**own, **capacity}
    return NodeArguments(
        os.path.abspath(found.home),
        found.node,
        capacity,
        labels,
        found.helpers,
        found.lease_ms,
        max(0, found.max_processes),
        not found.no_agent,
        domain,
        address,
        addresses,
        gpus_given,
    )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"'{text}' is not KEY=VALUE")
    return key, value
