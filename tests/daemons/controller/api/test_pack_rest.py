"""Jobs that wait for one domain for some time, on a controller: they start in it, or anywhere when the time is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.daemons.controller.api.test_within_rest import PAIR as WITHIN
from tests.daemons.controller.api.test_within_rest import SITE, alone, cancel, nodes_of, running, site, verdict
from tests.daemons.controller.running import Running, on_controller

PAIR: dict[str, Any] = {**{key: value for key, value in WITHIN.items() if key != "within"}, "pack": "rack:1h"}


async def one_of_each_rack(hal: Running) -> list[str]:
    """A whole node of each rack is taken: n2 and n4."""
    await site(hal)
    jobs = await hal.submit(*({**alone(name), "request": {"cpu": 2}} for name in ("n2", "n4")))
    await running(hal, 2)
    return jobs


def test_it_starts_in_one_rack_when_that_is_free_in_time(hal_home: Path) -> None:
    """n1 and n3 are free all the time; it waits for n2, and says so."""

    async def body(hal: Running) -> None:
        first, _second = await one_of_each_rack(hal)
        (pair,) = await hal.submit(PAIR)
        told = await verdict(hal, pair)
        assert (told["reason"], told["never"]) == ("resources", False)
        assert "It waits up to 1h for one rack, then for nodes anywhere (in " in told["message"]
        await cancel(hal, first)
        await running(hal, 3)
        assert await nodes_of(hal, pair) == ["n1", "n2"]
        assert (await hal.http.get(f"/v1/jobs/{pair}")).json()["spec"]["pack"] == "rack:1h"

    on_controller(hal_home, body, SITE)


def test_it_starts_anywhere_when_its_time_is_over_and_no_longer_says_otherwise(hal_home: Path) -> None:
    """Nothing ends meanwhile: the controller itself knows when."""

    async def body(hal: Running) -> None:
        await one_of_each_rack(hal)
        (pair,) = await hal.submit({**PAIR, "pack": "rack:300ms"})
        await running(hal, 4)
        assert await nodes_of(hal, pair) == ["n1", "n3"]
        assert "pack" not in (await hal.http.get(f"/v1/jobs/{pair}")).json()["spec"]

    on_controller(hal_home, body, SITE)


def test_a_user_may_end_the_wait(hal_home: Path) -> None:
    """By a change, which is checked like a submission."""

    async def body(hal: Running) -> None:
        await one_of_each_rack(hal)
        (pair,) = await hal.submit(PAIR)
        answer = await hal.http.patch(f"/v1/jobs/{pair}", json={"pack": "rak:5m"})
        assert (answer.status_code, answer.json()["detail"][:22]) == (400, "pack: no level 'rak'; ")
        dry = (await hal.http.patch(f"/v1/jobs/{pair}?dry_run=1", json={"pack": ""})).json()
        assert dry["starts_now"] is True
        await hal.http.patch(f"/v1/jobs/{pair}", json={"pack": ""})
        await running(hal, 4)
        assert await nodes_of(hal, pair) == ["n1", "n3"]

    on_controller(hal_home, body, SITE)


def test_what_no_rack_could_hold_is_taken_and_waits_for_its_time(hal_home: Path) -> None:
    """Three nodes of racks of two; five of four nodes are never."""

    async def body(hal: Running) -> None:
        await site(hal)
        (three,) = await hal.submit({**PAIR, "nodes": 3})
        told = await verdict(hal, three)
        assert (told["reason"], told["never"]) == ("resources", False)
        assert told["message"].startswith("no rack could hold its 3 nodes. It waits up to 1h for one rack")
        await hal.http.patch(f"/v1/jobs/{three}", json={"pack": "rack:1ms"})
        await running(hal, 3)
        answer = await hal.http.post("/v1/jobs", json={"jobs": [{**PAIR, "nodes": 5}]})
        assert answer.status_code == 400, answer.text

    on_controller(hal_home, body, SITE)


def test_a_controller_that_starts_again_gives_up_what_is_over(hal_home: Path) -> None:
    """The wish and its time are in the job's row."""
    made: list[str] = []

    async def before(hal: Running) -> None:
        await one_of_each_rack(hal)
        made.extend(await hal.submit({**PAIR, "pack": "rack:2s"}))
        assert (await hal.http.get(f"/v1/jobs/{made[0]}")).json()["spec"]["pack"] == "rack:2s"

    async def after(hal: Running) -> None:
        async def given_up() -> bool:
            return "pack" not in (await hal.http.get(f"/v1/jobs/{made[0]}")).json()["spec"]

        while not await given_up():
            await hal.runtime.sleep(10)

    on_controller(hal_home, before, SITE)
    on_controller(hal_home, after, SITE)
