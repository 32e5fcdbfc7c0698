"""Changes of jobs over REST, against a real controller and engine: dry runs, effects, rights."""

from __future__ import annotations

from pathlib import Path

from tests.daemons.controller.access.people import make_token, with_secret
from tests.daemons.controller.running import Running, on_controller

LARGE = {"command": ["exit", "0"], "request": {"cpu": 4}}
HOG = {"command": ["wait"], "request": {"cpu": 3}}


def test_a_dry_run_says_what_would_change_and_whether_it_would_start(hal_home: Path) -> None:
    """With 3 of 4 cpus in use: with 1 cpu it would start now, with 2 it would not; then it is changed, and runs."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        await hal.submit(HOG)
        (job,) = await hal.submit(LARGE)
        answers = []
        for cpu in (1, 2, 5):
            patch = {"request": {"cpu": cpu}}
            answers.append(await hal.http.patch(f"/v1/jobs/{job}?dry_run=1", json=patch))
        assert [(one.json()["starts_now"], one.json()["changes"]) for one in answers[:2]] == [
            (starts, [{"field": "request", "before": {"cpu": "4"}, "after": {"cpu": text}}])
            for starts, text in ((True, "1"), (False, "2"))
        ]
        assert "never starts, because 5 cpu asked for" in answers[2].json()["detail"]
        assert (await hal.http.get(f"/v1/jobs/{job}")).json()["request"] == {"cpu": "4"}
        changed = (await hal.http.patch(f"/v1/jobs/{job}", json={"request": {"cpu": 1}})).json()
        assert (changed["request"], changed["dry_run"]) == ({"cpu": "1"}, False)
        assert (await hal.ended(job))["state"] == "succeeded"

    on_controller(hal_home, body)


def test_dependencies_on_ended_jobs_are_looked_up(hal_home: Path) -> None:
    """It waits for one that failed, and is cancelled by its rule; one that never was is an error."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        (failed,) = await hal.submit({"command": ["exit", "1"]})
        await hal.ended(failed)
        (job,) = await hal.submit({**LARGE, "hold": True})
        unknown = await hal.http.patch(f"/v1/jobs/{job}", json={"dependencies": ["99"]})
        assert (unknown.status_code, "there is no job 99" in unknown.json()["detail"]) == (400, True)
        await hal.http.patch(f"/v1/jobs/{job}", json={"dependencies": [failed]})
        assert (await hal.ended(job))["state"] == "cancelled"

    on_controller(hal_home, body)


def test_a_user_cannot_wait_for_the_job_of_another(hal_home: Path) -> None:
    """Not even learn whether there is one: the same error as for a job that does not exist."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        (others,) = await hal.submit(HOG)
        async with with_secret(hal, (await make_token(hal, "bob"))["secret"]) as bob:
            mine = (await bob.post("/v1/jobs", json={**LARGE, "hold": True})).json()["ids"][0]
            answers = [await bob.patch(f"/v1/jobs/{mine}", json={"dependencies": [job]}) for job in (others, "99")]
        assert [one.status_code for one in answers] == [400, 400]
        assert answers[0].json()["detail"].replace(f" {others}", " 99") == answers[1].json()["detail"]

    on_controller(hal_home, body)
