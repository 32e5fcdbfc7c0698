"""Secrets over REST, on a running controller: whose they are, who learns what, and what a start does with them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from hal.daemons.controller.access.secret_keys import read_keys
from hal.daemons.controller.config import read_config
from hal.runtime.home import Home
from hal.wire.agree import SECRETS
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

VALUE = b"correct horse battery staple"
BODY = {"value": b64encode(VALUE).decode()}
USES = {"command": ["sleep"], "secrets": ["db"]}
POLICY = """
[accounts.physics]
closed = true
users = { bob = 1 }
coordinators = ["ann"]

[accounts.open]
"""


async def submit(http: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    """The answer to a job that uses `db`."""
    return await http.post("/v1/jobs", json={"jobs": [USES | fields]})


async def names(http: httpx.AsyncClient) -> list[str]:
    """What somebody is shown."""
    return [one["name"] for one in (await http.get("/v1/secrets")).json()["secrets"]]


def plane(hal: Running) -> Any:
    """What it knows of live jobs."""
    return hal.controller.planes.lead


def on_policy(root: Path, test: Any) -> None:
    """On a controller with two accounts."""
    on_controller(root, test, read_config(POLICY))


def test_a_secret_reaches_the_node_that_runs_the_job_and_no_answer(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent(features=(SECRETS,))
        made = await hal.http.put("/v1/secrets/db", json=BODY)
        assert made.json()["version"] == 1
        (job,) = await hal.submit(USES)
        await agent.until(lambda one: one.started)
        assert agent.secrets == {int(job): {"db": VALUE}}
        assert agent.templates[0].secrets == ("db",)
        shown = [made, await hal.http.get("/v1/secrets"), await hal.http.get(f"/v1/jobs/{job}")]
        assert not any(BODY["value"] in one.text or VALUE.decode() in one.text for one in shown)

    on_controller(hal_home, body)


def test_a_node_that_runs_nothing_of_the_job_gets_no_secret(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        other = await hal.agent("n0", features=(SECRETS,), cpu_milli=1_000)
        agent = await hal.agent("n1", features=(SECRETS,))
        await hal.http.put("/v1/secrets/db", json=BODY)
        await hal.submit(USES | {"request": {"cpu": 2}})
        await agent.until(lambda one: one.started)
        assert other.secrets == {}

    on_controller(hal_home, body)


def test_a_node_that_is_too_old_sends_the_job_to_another(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        await hal.agent("old")
        await hal.http.put("/v1/secrets/db", json=BODY)
        (job,) = await hal.submit(USES)
        await hal.until(lambda: "old" in plane(hal).job(int(job)).spec.exclude)
        agent = await hal.agent("new", features=(SECRETS,))
        await agent.until(lambda one: one.started)

    on_controller(hal_home, body)


def test_a_secret_that_is_replaced_has_another_version_and_value(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent(features=(SECRETS,))
        await hal.http.put("/v1/secrets/db", json=BODY)
        again = await hal.http.put("/v1/secrets/db", json={"value": b64encode(b"other").decode()})
        assert again.json()["version"] == 2
        (job,) = await hal.submit(USES)
        await agent.until(lambda one: one.started)
        assert agent.secrets == {int(job): {"db": b"other"}}

    on_controller(hal_home, body)


def test_a_job_whose_secret_is_not_there_is_refused(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        answer = await submit(hal.http)
        assert answer.status_code == 400
        assert "has no secret 'db'" in answer.json()["detail"]

    on_controller(hal_home, body)


def test_a_job_whose_secret_was_removed_fails_at_its_start_and_says_so(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        await hal.http.put("/v1/secrets/db", json=BODY)
        (job,) = await hal.submit(USES)
        assert (await hal.http.delete("/v1/secrets/db")).status_code == 200
        agent = await hal.agent(features=(SECRETS,))
        view = await hal.ended(job)
        assert view["state"] == "failed"
        assert "secret-missing" in view["reason"]
        assert not agent.started

    on_controller(hal_home, body)


# ── whose they are ────────────────────────────────────────────────────────────────────────────────────────────────


def test_users_neither_use_nor_see_nor_remove_each_others_secrets(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "bob") as bob, person(hal, "eve") as eve:
            await bob.put("/v1/secrets/db", json=BODY)
            assert (await submit(eve)).status_code == 400
            assert await names(eve) == []
            assert (await eve.delete("/v1/secrets/db", params={"user": "bob"})).status_code == 403
            assert (await eve.delete("/v1/secrets/db")).status_code == 404
            assert await names(bob) == ["db"]

    on_controller(hal_home, body)


def test_an_operator_sees_that_a_secret_is_there_and_cannot_have_it_used(hal_home: Path) -> None:
    """Or else `hal run -u bob --secret db -- cat …` would read it."""

    async def body(hal: Running) -> None:
        async with person(hal, "bob") as bob, person(hal, "olga", role="operator") as olga:
            await bob.put("/v1/secrets/db", json=BODY)
            assert await names(olga) == ["db"]
            answer = await submit(olga, user="bob")
            assert (answer.status_code, "only 'bob'" in answer.json()["detail"]) == (403, True)

    on_controller(hal_home, body)


def test_a_secret_of_a_closed_account_is_for_the_jobs_of_its_users(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        path = "/v1/accounts/physics/secrets/db"
        async with person(hal, "bob") as bob, person(hal, "eve") as eve:
            assert (await bob.put(path, json=BODY)).status_code == 403
            assert (await hal.http.put(path, json=BODY)).status_code == 200
            assert (await submit(bob)).status_code == 400
            assert (await submit(bob, account="physics")).status_code == 201
            assert (await submit(eve, account="physics")).status_code == 400
            assert (await names(bob), await names(eve)) == (["db"], [])

    on_policy(hal_home, body)


def test_a_coordinator_sets_and_removes_secrets_of_their_account_and_uses_none(hal_home: Path) -> None:
    """ann coordinates physics and is not one of its users; what she sets is bob's to use."""

    async def body(hal: Running) -> None:
        path = "/v1/accounts/physics/secrets/db"
        async with person(hal, "ann") as ann, person(hal, "bob") as bob:
            assert (await ann.put(path, json=BODY)).json()["set_by"] == "ann"
            assert (await names(ann), await names(bob)) == (["db"], ["db"])
            assert (await submit(ann, account="physics")).status_code == 400
            assert (await submit(bob, account="physics")).status_code == 201
            assert (await bob.delete(path)).status_code == 403
            assert (await ann.delete(path)).status_code == 200

    on_policy(hal_home, body)


@pytest.mark.parametrize("narrowed", [{"accounts": ["physics"]}, {"read_only": True}])
def test_a_narrowed_token_of_a_coordinator_sets_no_secret_of_the_account(
    hal_home: Path, narrowed: dict[str, Any]
) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann", **narrowed) as ann:
            assert (await ann.put("/v1/accounts/physics/secrets/db", json=BODY)).status_code == 403
            assert (await ann.put("/v1/accounts/open/secrets/db", json=BODY)).status_code == 403

    on_policy(hal_home, body)


@pytest.mark.parametrize(("account", "why"), [("open", "is not closed"), ("nowhere", "is not an account")])
def test_an_account_that_anybody_may_use_has_no_secrets(hal_home: Path, account: str, why: str) -> None:
    async def body(hal: Running) -> None:
        answer = await hal.http.put(f"/v1/accounts/{account}/secrets/db", json=BODY)
        assert (answer.status_code, why in answer.json()["detail"]) == (400, True)

    on_policy(hal_home, body)


def test_a_job_uses_secrets_and_does_not_change_them(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent(features=(SECRETS,))
        await hal.submit({"command": ["sleep"]})
        await agent.until(lambda one: one.started)
        step = {"Authorization": f"Bearer {agent.credential()}"}
        answer = await hal.http.put("/v1/secrets/db", json=BODY, headers=step)
        assert (answer.status_code, "may not change them" in answer.json()["detail"]) == (403, True)

    on_controller(hal_home, body)


# ── bounds, keys, restarts ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [("db", b""), ("db", b"x" * (64 << 10) + b"x"), (".hidden", b"x"), ("a" * 65, b"x"), ("sp%20ace", b"x")],
    ids=["empty", "too long", "hidden", "long name", "space"],
)
def test_what_is_no_secret_is_refused(hal_home: Path, name: str, value: bytes) -> None:
    async def body(hal: Running) -> None:
        answer = await hal.http.put(f"/v1/secrets/{name}", json={"value": b64encode(value).decode()})
        assert answer.status_code == 400

    on_controller(hal_home, body)


def test_a_user_has_a_bounded_number_of_secrets(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hal.daemons.controller.service.access.secrets.MAX_OF_ONE_OWNER", 3)

    async def body(hal: Running) -> None:
        for number in range(3):
            assert (await hal.http.put(f"/v1/secrets/s{number}", json=BODY)).status_code == 200
        assert (await hal.http.put("/v1/secrets/one-more", json=BODY)).status_code == 503
        assert (await hal.http.put("/v1/secrets/s1", json=BODY)).status_code == 200

    on_controller(hal_home, body)


def test_after_a_change_of_the_key_everything_is_stored_under_the_new_one(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent(features=(SECRETS,))
        await hal.http.put("/v1/secrets/db", json=BODY)
        (before,) = read_keys(Home(hal_home).secret_keys).keys
        done = (await hal.http.post("/v1/secret-keys/rotate")).json()
        assert list(read_keys(Home(hal_home).secret_keys).keys) == [done["key"]]
        assert (done["sealed"], done["left"], before != done["key"]) == (1, 0, True)
        (job,) = await hal.submit(USES)
        await agent.until(lambda one: one.started)
        assert agent.secrets == {int(job): {"db": VALUE}}

    on_controller(hal_home, body)


def test_secrets_outlive_the_controller(hal_home: Path) -> None:
    async def first(hal: Running) -> None:
        await hal.http.put("/v1/secrets/db", json=BODY)

    async def second(hal: Running) -> None:
        agent = await hal.agent(features=(SECRETS,))
        (job,) = await hal.submit(USES)
        await agent.until(lambda one: one.started)
        assert agent.secrets == {int(job): {"db": VALUE}}

    on_controller(hal_home, first)
    on_controller(hal_home, second)


def test_without_the_file_of_keys_hal_runs_and_says_what_is_missing(hal_home: Path) -> None:
    async def first(hal: Running) -> None:
        await hal.http.put("/v1/secrets/db", json=BODY)

    async def second(hal: Running) -> None:
        await hal.agent(features=(SECRETS,))
        (job,) = await hal.submit(USES)
        assert "is not in HAL_HOME/secrets.key" in (await hal.ended(job))["reason"]
        answer = await hal.http.put("/v1/secrets/new", json=BODY)
        assert (answer.status_code, "is missing" in answer.json()["detail"]) == (403, True)

    on_controller(hal_home, first)
    Home(hal_home).secret_keys.unlink()
    on_controller(hal_home, second)


def test_the_audit_log_names_the_secret_and_not_its_value(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        await hal.http.put("/v1/secrets/db", json=BODY)
        (entry,) = (await hal.http.get("/v1/audit")).json()["entries"]
        assert entry["targets"][0].startswith("secret 'db' of user")

    on_controller(hal_home, body)
