"""A plane beside HAL that uses everything the spine offers planes; only public interfaces, a process of its own.

    [supervision.planes.spot]                                  # in hal.toml; then: hal up --wire 127.0.0.1 --with spot
    command = ["python3", "/path/to/examples/plane/plane.py", "--budget", "3600", "--machines", "2"]
    health = "spot.sock"

It follows ended attempts and learns how fast nodes are; advises them as prices; gates jobs that name `budget`; rents
machines for work that asks for the label pool=spot, and returns them; keeps what it knows in a database of its own, and
answers over REST at spot.sock. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import budget_gate
from ledger import Ledger
from msgspec import Struct
from rental import Rental

from hal import AsyncClient, HALError
from hal.client.addresses.address import Address
from hal.client.rest import feed_calls
from hal.rest.call import Call
from hal.rest.daemon import interface_of, serve
from hal.rest.endpoint import Endpoint
from hal.rest.limits import Limits
from hal.rest.openapi import About
from hal.rest.rights import EVERYBODY, OPERATORS
from hal.runtime.home import find_home
from hal.runtime.interface import Runtime
from hal.runtime.process import run

NAME = "spot"
EVERY_S = 1.0
PRICE_EXPIRES = "30s"
"""Much longer than the pause between two updates, so that a restart of the plane is not felt."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far the plane has read."""

    counted: int
    """Sequence number of the last ended attempt that was counted."""


class Speeds(Struct, frozen=True, kw_only=True):
    """Mean seconds of attempts, by node."""

    nodes: dict[str, float]


class Spending(Struct, frozen=True, kw_only=True):
    """Seconds that attempts took, by user."""

    users: dict[str, float]


async def progress(ledger: Ledger, call: Call) -> Progress:
    """How far it has read."""
    return Progress(counted=ledger.sequence)


async def speeds(ledger: Ledger, call: Call) -> Speeds:
    """What was learned."""
    return Speeds(nodes={one.name: round(one.mean_s, 3) for one in ledger.speeds()})


async def spending(ledger: Ledger, call: Call) -> Spending:
    """Who spent how much."""
    return Spending(users={user: round(seconds, 3) for user, seconds in ledger.spent().items()})


ABOUT = About(
    title="Spot", versions=(1,), summary="Speeds, budgets, spot machines.", description="An example of a plane.",
    server="the Unix socket `spot.sock`", tags=("spot", "access", "service"),
)  # fmt: skip
INTERFACE = interface_of(
    ABOUT,
    (
        Endpoint(
            method="GET", path="/v1/progress", handler=progress, right=EVERYBODY, name="progress", tag="service",
            summary="How far the plane has read", result=Progress,
        ),
        Endpoint(
            method="GET", path="/v1/speeds", handler=speeds, right=EVERYBODY, name="speeds", tag="spot",
            summary="How fast nodes are", result=Speeds,
        ),
        Endpoint(
            method="GET", path="/v1/spending", handler=spending, right=OPERATORS, name="spending", tag="spot",
            summary="Who spent how much", result=Spending,
        ),
    ),
)  # fmt: skip


class Plane:
    """The plane's loops over one HAL."""

    def __init__(self, runtime: Runtime, client: AsyncClient, ledger: Ledger, rental: Rental) -> None:
        self._runtime, self._client, self._ledger, self._rental = runtime, client, ledger, rental

    async def follow(self) -> None:
        """Count ended attempts as they come; what the plane has not read is kept for it."""
        await self._client.call(feed_calls.register_reader(NAME, feeds=("attempts",), begin="oldest"))
        after = str(self._ledger.sequence)
        async for ended in self._client.attempts(after=after, follow=True, reader=NAME, on_lost=self._lost):
            self._ledger.count([ended])

    async def advise(self) -> None:
        """Put all prices: a node costs what its attempts take."""
        prices = {one.name: one.mean_s for one in self._ledger.speeds()}
        await self._client.put_advice("price", prices, space="nodes", expires_in=PRICE_EXPIRES)

    async def rent(self) -> None:
        """Look after the machines."""
        await self._rental.look(time.monotonic)

    async def forever(self, act: Callable[[], Awaitable[None]]) -> None:
        """Act again and again; while HAL is away, or refuses something, try again later."""
        while True:
            try:
                await act()
            except HALError as error:
                self._runtime.log.warning("not done", act=act.__name__, error=error.message)
            await asyncio.sleep(EVERY_S)

    def _lost(self, first: int, last: int) -> None:
        self._runtime.log.warning("ended attempts were removed before they were read", first=first, last=last)


async def stopped(runtime: Runtime) -> None:
    """Return when this process was asked to stop."""
    await runtime.stopping.wait()


async def main(runtime: Runtime, options: argparse.Namespace) -> None:
    """Run until asked to stop."""
    directory = runtime.paths.root / NAME
    ledger = Ledger(directory / "spot.sqlite", options.budget)
    async with AsyncClient(Address(home=runtime.paths)) as client:
        rental = Rental(client, ledger, directory / "machines", most=options.machines, idle_s=options.idle)
        plane = Plane(runtime, client, ledger, rental)
        server = await serve(runtime, INTERFACE, ledger, limits=Limits())
        async with budget_gate.serving(runtime.paths.root, ledger):
            acts = [plane.follow, plane.advise, *([plane.rent] if options.machines else [])]
            tasks = [asyncio.create_task(plane.forever(act)) for act in acts]
            await asyncio.wait([asyncio.create_task(stopped(runtime)), *tasks], return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await server.stop()
        for task in ended:
            task.result()  # a fault of the plane: it ends, and its supervisor starts it again
    ledger.close()


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="of each user (default: 3600)")
    parser.add_argument("--machines", type=int, default=0, metavar="N", help="most that are rented (default: 0)")
    parser.add_argument("--idle", type=float, default=60.0, metavar="SECONDS", help="before one is returned (60)")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    sys.exit(run(NAME, find_home(), lambda runtime: main(runtime, options)))
