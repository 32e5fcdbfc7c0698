"""Sessions as jobs of a HAL of one node of two cores: from opening to the first result, growth, and how long a batch
job waits while a session with two slots runs flat out, of the same account and of another one that lends it a core. And
`true` as command tasks, beside an array of it in turn.

Prints JSON lines: `python benchmarks/session_jobs.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import hal
from _private_hal import command, private_hal, say
from hal.client.sessions.opening import OpenedSession
from hal.client.sync_client import Client
from hal.runtime.commands import run_command

TARGET_OPEN_S = 0.5
TARGET_START_S = 5.0
TARGET_COMMANDS = 0.9
TASKS = 200_000
COMMANDS = 2_000
TRUE = ["/bin/true"]
LOOK_S = 0.005
BORROWED = (
    "account add red",
    "account add blue",
    "limit add red --account red --resources cpu=1 --cohort colours --reclaim preempt",
    "limit add blue --account blue --resources cpu=1 --cohort colours --reclaim preempt",
)
"""Rules by which each of two accounts owns one core, and may borrow the other's."""


def main() -> None:
    parser = argparse.ArgumentParser(description="sessions as jobs")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with private_hal("--cpus", "2", "--name", "n1") as home, hal.connect() as client:
        opened = [first_result_s(client) for _ in range(rounds + 1)][1:]
        say("session-open", statistics.median(opened), "s", TARGET_OPEN_S, higher=False, worst=round(max(opened), 3))
        grown, started, back = zip(*[makes_room(client) for _ in range(rounds)], strict=True)
        say("session-grows", statistics.median(grown), "s", worst=round(max(grown), 3))
        say("session-makes-room", statistics.median(started), "s", TARGET_START_S, higher=False,
            worst=round(max(started), 3))  # fmt: skip
        say("session-grows-again", statistics.median(back), "s", worst=round(max(back), 3))
        for change in BORROWED:
            command(home, *change.split())
        reclaimed = [gives_back(client) for _ in range(rounds)]
        say("session-gives-quota-back", statistics.median(reclaimed), "s", TARGET_START_S, higher=False,
            worst=round(max(reclaimed), 3))  # fmt: skip
        rates, arrays = zip(*[commands_beside_an_array(client) for _ in range(rounds)], strict=True)
        say("session-commands", statistics.median(rates), "commands/s")
        ratios = [one / other for one, other in zip(rates, arrays, strict=True)]
        say("session-commands-to-array", statistics.median(ratios), "times", TARGET_COMMANDS,
            worst=round(min(ratios), 2), array=round(statistics.median(arrays)))  # fmt: skip


def first_result_s(client: Client) -> float:
    """From opening a session to the result of its first task."""
    began = time.perf_counter()
    with client.session(slots=1, cpus=1, memory="64MiB") as session:
        assert session.submit(pow, 2, 10).result() == 1024
        took = time.perf_counter() - began
    session.slots.wait()
    return took


def makes_room(client: Client) -> tuple[float, float, float]:
    """Seconds until a session has its second slot, until a job of one core starts, and until the slot is back."""
    with client.session(slots=(1, 2), cpus=1, memory="64MiB") as session:
        assert session.submit(abs, -1).result() == 1
        began = time.perf_counter()
        results = session.map(spin, range(TASKS))
        wait_for_slots(session, 2)
        grown = time.perf_counter() - began
        job = client.submit(["true"], cpus=1)
        job.wait()
        ended = time.perf_counter()
        wait_for_slots(session, 2)
        back = time.perf_counter() - ended
        info = job.refresh()
        assert info.start_ms is not None
        results.close()  # type: ignore[attr-defined]
        session.shutdown(cancel_futures=True)
    session.slots.wait()
    return grown, (info.start_ms - info.submit_ms) / 1_000, back


def gives_back(client: Client) -> float:
    """Seconds until a job of one account starts while a session of another one uses its quota, too, in both slots."""
    with client.session(slots=2, cpus=1, memory="64MiB", account="red") as session:
        wait_for_slots(session, 2)
        results = session.map(spin, range(TASKS))
        job = client.submit(["true"], cpus=1, account="blue")
        job.wait()
        info = job.refresh()
        assert info.start_ms is not None
        results.close()  # type: ignore[attr-defined]
        session.shutdown(cancel_futures=True)
    session.slots.wait()
    return (info.start_ms - info.submit_ms) / 1_000


def commands_beside_an_array(client: Client) -> tuple[float, float]:
    """Processes a second: as command tasks of a session with two slots, and as an array of two at a time."""
    with client.session(slots=2, cpus=1, memory="64MiB") as session:
        wait_for_slots(session, 2)
        list(session.map(run_command, [TRUE] * 100))
        began = time.perf_counter()
        assert all(not end.exit_code for end in session.map(run_command, [TRUE] * COMMANDS))
        ours = COMMANDS / (time.perf_counter() - began)
    session.slots.wait()
    began = time.perf_counter()
    client.submit(TRUE, array=COMMANDS).wait()
    return ours, COMMANDS / (time.perf_counter() - began)


def spin(number: int) -> int:
    """A task of about a millisecond."""
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        pass
    return number


def wait_for_slots(session: OpenedSession, count: int) -> None:
    while session.numbers().slots != count:
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
