"""Whose jobs a HAL takes that is not root's: its owner's, unless the owner lends the account; and what it says."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hal.core.model import DeniedError, JobSpec, SpecError
from hal.core.model.facts import Facts
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.api.requests.ownership import check_as_whom
from hal.daemons.controller.config import Config, read_config
from hal.rest.identity import Identity
from hal.rest.rights import Role
from hal.runtime.step_users import Serving, refusal
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["true"]}
ACCESS = AccessSection(socket="", users=("*",))


def test_a_hal_of_one_user_refuses_jobs_of_others(hal_home: Path) -> None:
    """Whoever submits them; the answer names the setting, and nothing is left of it."""

    async def body(hal: Running) -> None:
        refused = await hal.http.post("/v1/jobs", json={**TRUE, "user": "alice"})
        assert (refused.status_code, "'alice' is not 'olga'" in refused.json()["detail"]) == (403, True)
        assert "run_as_owner = true" in refused.json()["hint"]
        assert (await hal.http.get("/v1/jobs")).json()["jobs"] == []
        assert (await hal.http.post("/v1/jobs", json={**TRUE, "user": "olga"})).status_code == 201

    on_controller(hal_home, body, Config(serving=Serving.OWNER_ONLY, runs_as="olga"))


STEP = "i-1.0.1-1"


@pytest.mark.parametrize(
    ("identity", "runs_as"),
    [
        (Identity(user="root", role=Role.ADMIN, inside=True), ["root", "alice"]),
        (Identity(user="hal", role=Role.ADMIN, inside=True), ["hal", "alice"]),
        (Identity(user="root", role=Role.ADMIN, token="t1"), ["alice"]),
        (Identity(user="root", role=Role.USER, step=STEP), ["root"]),
        (Identity(user="root", role=Role.USER, step=STEP, only_job=1), []),
        (Identity(user="carl", role=Role.ADMIN), ["carl", "alice"]),
        (Identity(user="olaf", role=Role.OPERATOR), ["olaf"]),
        (Identity(user="alice", role=Role.USER), ["alice"]),
        (Identity(user="alice", role=Role.USER, step=STEP, only_job=1), ["alice"]),
    ],
)
def test_nobody_runs_a_program_as_somebody_else_by_naming_them(identity: Identity, runs_as: list[str]) -> None:
    """Root's jobs come from root itself; an admin, who could create a token for any other user, may name them."""
    allowed = []
    for user in dict.fromkeys(["root", identity.user, "alice"]):
        with contextlib.suppress(DeniedError):
            check_as_whom(identity, Serving.EACH_AS_ITSELF, "root", [JobSpec(command=("true",), user=user)])
            allowed.append(user)
    assert allowed == runs_as


@pytest.mark.parametrize(
    ("serving", "told"),
    [
        (Serving.OWNER_ONLY, ["only jobs of olga run here: of every holder of a token they are refused"]),
        (Serving.ALL_AS_OWNER, ["steps run as olga: every holder of a token gets that account"]),
        (Serving.EACH_AS_ITSELF, []),
    ],
)
def test_health_says_what_becomes_of_others_jobs(hal_home: Path, serving: Serving, told: list[str]) -> None:
    """Where somebody else may come in."""

    async def body(hal: Running) -> None:
        await hal.http.post("/v1/api-tokens", json={"user": "alice", "role": "user"})
        assert (await hal.http.get("/v1/health")).json()["warnings"] == told

    on_controller(hal_home, body, Config(serving=serving, runs_as="olga"))


THEMSELVES = Facts(steps=Serving.EACH_AS_ITSELF, account="root")


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([THEMSELVES], []),
        ([Facts(steps=Serving.ALL_AS_OWNER, account="nora"), THEMSELVES], ["nora"]),
        ([Facts(steps=Serving.ALL_AS_OWNER, account="nora"), Facts()], ["nora, olga"]),
    ],
)
def test_health_names_the_accounts_that_nodes_lend(hal_home: Path, nodes: list[Facts], told: list[str]) -> None:
    """Behind a controller of olga's, which lends hers: where root started a node, each step runs as its user."""

    async def body(hal: Running) -> None:
        await hal.http.post("/v1/api-tokens", json={"user": "alice", "role": "user"})
        for number, facts in enumerate(nodes):
            await hal.agent(f"n{number}", facts=facts)
        warnings = (await hal.http.get("/v1/health")).json()["warnings"]
        assert warnings == [f"steps run as {names}: every holder of a token gets that account" for names in told]

    on_controller(hal_home, body, Config(serving=Serving.ALL_AS_OWNER, runs_as="olga"))


def test_safety_before_nodes_of_root_nobody_is_named_by_who_may_not(hal_home: Path) -> None:
    """Not by an operator, although the controller lends its account; and root by none of them."""

    async def body(hal: Running) -> None:
        await hal.agent(facts=THEMSELVES)
        async with person(hal, "olaf", role="operator") as olaf, person(hal, "carl", role="admin") as carl:
            asked = [(olaf, "alice"), (olaf, "olaf"), (carl, "alice"), (carl, "root")]
            statuses = [(await who.post("/v1/jobs", json={**TRUE, "user": user})).status_code for who, user in asked]
        assert statuses == [403, 201, 201, 403]

    on_controller(hal_home, body, Config(serving=Serving.ALL_AS_OWNER, runs_as="olga"))


@pytest.mark.parametrize(
    ("how", "user", "runs"),
    [
        (Serving.ALL_AS_OWNER, "alice", True),
        (Serving.ALL_AS_OWNER, "", True),
        (Serving.EACH_AS_ITSELF, "alice", True),
        (Serving.EACH_AS_ITSELF, "", False),
        (Serving.OWNER_ONLY, "olga", True),
        (Serving.OWNER_ONLY, "alice", False),
        (Serving.OWNER_ONLY, "", False),
    ],
)
def test_who_runs_where(how: Serving, user: str, runs: bool) -> None:
    """A step of nobody knows whom runs only where everybody's runs as the owner."""
    assert (refusal(how, "olga", user) == "") is runs


def test_the_former_setting_is_one_error_that_names_the_new_one() -> None:
    with pytest.raises(SpecError, match=r"access\.steps_run_as_root: no longer exists.*run_as_owner = true"):
        read_config("[access]\nsteps_run_as_root = false\n")
