"""A batch job of an account below its share, while a session of another account runs flat out in all slots."""

from __future__ import annotations

import threading

import pytest

from hal.client.sync_client import Client
from tests.client.sessions.processes import WAIT_S
from tests.e2e.conftest import LiveHal, until
from tests.e2e.session_tasks import napping

pytestmark = pytest.mark.slow
ACCOUNTS = "account add red", "account add blue"
COHORT = (
    "limit add red --account red --resources cpu=1 --cohort colours --reclaim preempt",
    "limit add blue --account blue --resources cpu=1 --cohort colours --reclaim preempt",
)


def ruled(live: LiveHal, *changes: str) -> Client:
    """A HAL of two cores, with these rules."""
    live.up("--cpus", "2")
    for change in changes:
        live.run(*change.split(), check=True)
    return live.client()


@pytest.mark.parametrize(
    ("slots", "changes"), [((1, 2), ACCOUNTS), ((2, 2), (*ACCOUNTS, *COHORT))], ids=["by-share", "by-reclaim"]
)
def test_a_batch_job_of_another_account_runs_beside_a_busy_session(
    own_hal: LiveHal, slots: tuple[int, int], changes: tuple[str, ...]
) -> None:
    """Red's session computes on both cores; `hal run` of blue runs and ends while the session still has work, and the
    session loses no task. Where both slots are the session's least, blue reclaims its quota."""
    with (
        ruled(own_hal, *changes) as client,
        client.session(slots=slots, cpus=1, memory="64MiB", account="red") as session,
    ):
        stop, results = threading.Event(), []

        def work() -> None:
            number = 0
            while not stop.is_set():
                futures = [session.submit(napping, number + more) for more in range(40)]
                results.extend(future.result() for future in futures)
                number += 40

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: session.numbers().busy == 2, "the session does not compute on both cores")
        ran = own_hal.run("run", "--account", "blue", "--cpus", "1", "--", "echo", "mine", check=True)
        assert "mine" in ran.out
        assert thread.is_alive()
        until(lambda: session.numbers().busy == 2, "the slot did not come back")
        stop.set()
        thread.join(2 * WAIT_S)
        assert results == list(range(len(results)))
        (blue,) = [job for job in client.jobs(state="ended") if job.account == "blue"]
        assert blue.start_ms is not None
        print(f"started after {blue.start_ms - blue.submit_ms} ms")
