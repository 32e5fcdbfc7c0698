"""A program that uses a session, for the tests beside it; prints as JSON what it found."""

from __future__ import annotations

import json
import os
import sys
import time

import hal

SPREAD_S = 120.0
"""So long tasks may take to reach all hosts; a host that is down would be waited for without end."""


def where(number: int) -> tuple[int, str]:
    """The square of a number, and on which host this is."""
    time.sleep(0.01)
    return number * number, os.uname().nodename


class Hosts(set[str]):
    """Where tasks have run."""

    def __init__(self, least: int = 3) -> None:
        super().__init__()
        self._least = least
        self._until_s = time.monotonic() + SPREAD_S

    def are_too_few(self) -> bool:
        """Whether tasks are to run on more of them; ends the program if they have not for too long."""
        if len(self) >= self._least:
            return False
        if time.monotonic() > self._until_s:
            sys.exit(f"tasks have run on {sorted(self)} only")
        return True


def spread(slots: int, name: str, shards: int = 1, least: int = 3) -> None:
    """Until tasks have run on all three hosts, or on so many: two brokers leave no memory for slots beside them."""
    with (
        hal.connect() as client,
        client.session(slots=slots, cpus=1, memory="32MiB", name=name, shards=shards) as session,
    ):
        hosts = Hosts(least)
        right = True
        while hosts.are_too_few():
            found = list(session.map(where, range(100)))
            right = right and [square for square, _ in found] == [number * number for number in range(100)]
            hosts |= {host for _, host in found}
        brokers = [one.node for one in client.service(name).endpoints]
        used = sum(core.number > 0 and core.lost is None for core in session._cores)
    say({"hosts": sorted(hosts), "broker": brokers[0], "right": right, "brokers": len(brokers), "used": used})


def stay(shards: int = 1) -> None:
    """Until somebody has found it, and used it."""
    with (
        hal.connect() as client,
        client.session(slots=2, cpus=1, memory="32MiB", name="found", shards=shards) as session,
    ):
        sys.stdout.write("open\n")
        sys.stdout.flush()
        while session.numbers().done < 1:
            time.sleep(0.05)
    say({})


def find() -> None:
    """Use a session of that name from here."""
    with hal.connect() as client:
        session = client.find_session("found")
        tasks = session.submit(pow, 2, 10).result()
        say({"tasks": tasks})
        os._exit(0)  # who opened it ends it


def long() -> None:
    """While a host is lost."""
    with hal.connect() as client, client.session(slots=6, cpus=1, memory="32MiB", name="long") as session:
        hosts = Hosts()
        while hosts.are_too_few():
            hosts |= {host for _, host in session.map(where, range(100))}
        futures = [session.submit(where, number) for number in range(3_000)]
        sys.stdout.write("all\n")
        sys.stdout.flush()
        found = [future.result()[0] for future in futures]
    say({"right": found == [number * number for number in range(3_000)]})


def durable() -> None:
    """Submit tasks to a durable session, and stay until this machine is lost."""
    with hal.connect() as client:
        session = client.session(slots=6, cpus=1, memory="32MiB", name="deep", durable=True)
        hosts = Hosts()
        while hosts.are_too_few():
            hosts |= {host for _, host in session.map(where, range(100))}
        futures = [session.submit(where, number) for number in range(2_000)]
        assert futures[0].result()[0] == 0
        sys.stdout.write("all\n")
        sys.stdout.flush()
        for future in futures:
            future.result()
        time.sleep(600)


def resume() -> None:
    """Open it again: what was not received is there, once, and new tasks run on all hosts."""
    with hal.connect() as client, client.session(slots=6, cpus=1, memory="32MiB", name="deep", durable=True) as session:
        found = [future.result()[0] for future in session.recovered]
        hosts = Hosts()
        while hosts.are_too_few():
            hosts |= {host for _, host in session.map(where, range(100))}
    squares = {number * number for number in range(2_000)}
    say({"right": len(found) == len(set(found)) and set(found) <= squares, "some": bool(found)})


def large() -> None:
    """Arguments, results and shared values over 1 MiB, on all hosts."""
    hosts = Hosts()
    right = True
    with hal.connect() as client, client.session(slots=6, cpus=1, memory="64MiB", name="large") as session:
        shared = session.put(bytes(range(256)) * 20_000)
        while hosts.are_too_few():
            given = [bytes([number]) * 3_000_000 for number in range(12)]
            for number, (result, host) in enumerate(session.map(doubled, given, [shared] * 12)):
                hosts.add(host)
                right = right and result == bytes([number]) * 6_000_000 + bytes(range(256))
    say({"right": right})


def doubled(given: bytes, shared: bytes) -> tuple[bytes, str]:
    time.sleep(0.05)
    return given * 2 + shared[-256:], os.uname().nodename


def say(found: object) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    {
        "spread": lambda: spread(6, "spread"),
        "shards": lambda: spread(6, "sharded", 3, 2),
        "stay": stay,
        "stay-sharded": lambda: stay(2),
        "find": find,
        "long": long,
        "large": large,
        "durable": durable,
        "resume": resume,
    }[sys.argv[1]]()
