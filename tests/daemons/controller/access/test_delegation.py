"""Delegated rights: what coordinators of accounts and operators of queues can do, and that they can do nothing else.

The account tree is `science` with `physics` below it, and `arts` beside it. ann coordinates science, quentin operates
queue `short`; ada has jobs of physics, bob of arts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from hal.core.model.policy import Account, Limit, Policy, Queue
from hal.core.model.policy_delegation import keep_delegated
from hal.daemons.controller.access.oidc_settings import GroupsSection
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.config import Config
from hal.daemons.controller.service.policy import delegated
from hal.rest.identity import Identity, Scope
from hal.rest.rights import Role
from tests.daemons.controller.access.people import make_token, person, with_secret
from tests.daemons.controller.running import Running, on_controller

POLICY = Policy(
    queues={"default": Queue(), "short": Queue(operators=("quentin",)), "long": Queue()},
    accounts={
        "science": Account(coordinators=("ann",)),
        "physics": Account(parent="science"),
        "arts": Account(),
    },
)
CONFIG = Config(policy=POLICY)
HELD = {"command": ["true"], "hold": True, "env": {"PASSWORD": "secret"}}


class People:
    """The people above, each with a token of the role user, and the ids of the jobs of ada and bob."""

    def __init__(self, hal: Running, clients: dict[str, httpx.AsyncClient]) -> None:
        self.hal = hal
        self._clients = clients
        self.physics = self.arts = self.in_short = ""

    def __getattr__(self, name: str) -> httpx.AsyncClient:
        return self._clients[name]


def with_people(home: Path, test: Callable[[People], Awaitable[None]], config: Config = CONFIG) -> None:
    """Run a test among them."""

    async def body(hal: Running) -> None:
        async with AsyncExitStack() as stack:
            names = ("ann", "quentin", "ada", "bob", "mallory")
            clients = {name: await stack.enter_async_context(person(hal, name)) for name in names}
            people = People(hal, clients)
            people.physics = await submitted(people.ada, account="physics")
            people.arts = await submitted(people.bob, account="arts")
            people.in_short = await submitted(people.bob, account="arts", queue="short")
            await test(people)

    on_controller(home, body, config)


async def submitted(who: httpx.AsyncClient, **fields: Any) -> str:
    """The id of a new job that is held."""
    answer = await who.post("/v1/jobs", json=HELD | fields)
    assert answer.status_code == 201, answer.text
    job: str = answer.json()["ids"][0]
    return job


async def control(who: httpx.AsyncClient, action: str, **asked: Any) -> list[tuple[str, bool]]:
    """Outcomes: id and whether it was done."""
    answer = await who.post(f"/v1/jobs/{action}", json=asked)
    assert answer.status_code == 200, answer.text
    return [(one["id"], one["ok"]) for one in answer.json()["results"]]


def test_a_coordinator_sees_and_ends_jobs_of_the_account_and_of_those_below_it(hal_home: Path) -> None:
    """By id and by filter; what ada wrote into the job stays hers."""

    async def body(people: People) -> None:
        job = (await people.ann.get(f"/v1/jobs/{people.physics}")).json()
        assert (job["user"], job["account"]) == ("ada", "physics")
        assert "spec" not in job
        listed = (await people.ann.get("/v1/jobs", params={"account": "physics"})).json()["jobs"]
        assert [one["id"] for one in listed] == [people.physics]
        for path in ("tasks", "why", "wait?timeout_s=0"):
            answer = await people.ann.get(f"/v1/jobs/{people.physics}/{path}")
            assert answer.status_code == 200
            assert "PASSWORD" not in answer.text
        assert await control(people.ann, "release", ids=[people.physics]) == [(people.physics, True)]
        assert await control(people.ann, "hold", filter={"account": "physics"}) == [(people.physics, True)]
        assert await control(people.ann, "cancel", filter={"account": "physics", "user": "ada"}) == [
            (people.physics, True)
        ]

    with_people(hal_home, body)


def test_an_operator_of_a_queue_sees_and_ends_jobs_in_it(hal_home: Path) -> None:
    """Of whomever and of whichever account."""

    async def body(people: People) -> None:
        listed = (await people.quentin.get("/v1/jobs", params={"queue": "short"})).json()["jobs"]
        assert [one["id"] for one in listed] == [people.in_short]
        asked = [people.in_short, people.arts]
        assert await control(people.quentin, "cancel", ids=asked) == [(people.in_short, True), (people.arts, False)]

    with_people(hal_home, body)


def test_safety_elsewhere_they_are_users_like_others(hal_home: Path) -> None:
    """Bob's job of arts in the default queue: nobody of them sees it or does anything to it, in any way."""

    async def body(people: People) -> None:
        for client in (people.ann, people.quentin, people.mallory, people.ada):
            await attack(people, client)

    async def attack(people: People, client: httpx.AsyncClient) -> None:
        for path in ("", "/tasks", "/why", "/wait", "/priority", "/logs", "/tasks/0"):
            assert (await client.get(f"/v1/jobs/{people.arts}{path}")).status_code == 404
        for params in ({"account": "arts"}, {"queue": "default"}, {}, {"account": "physics", "queue": "default"}):
            listed = (await client.get("/v1/jobs", params=params)).json()["jobs"]
            assert people.arts not in [one["id"] for one in listed]
        for action in ("cancel", "hold", "release", "requeue", "remove"):
            assert await control(client, action, ids=[people.arts]) == [(people.arts, False)]
            assert people.arts not in [job for job, _ in await control(client, action, filter={"account": "arts"})]
        assert (await client.patch(f"/v1/jobs/{people.arts}", json={"priority": -1})).status_code == 404
        assert (await client.get("/v1/jobs", params={"user": "bob"})).status_code == 403

    with_people(hal_home, body)


def test_safety_only_some_rights_are_delegated(hal_home: Path) -> None:
    """Not outputs, variables, events, changes, requeues, removals; nor policy, tokens, nodes, or the audit log."""

    async def body(people: People) -> None:
        await attack(people, people.ann, "ann")
        await attack(people, people.quentin, "quentin")

    async def attack(people: People, client: httpx.AsyncClient, who: str) -> None:
        job = people.physics if who == "ann" else people.in_short
        for path in (f"/v1/jobs/{job}/logs", f"/v1/jobs/{job}/tasks/0", f"/v1/events?job={job}"):
            assert (await client.get(path)).status_code == 404
        assert (await client.patch(f"/v1/jobs/{job}", json={"priority": -1})).status_code == 404
        for action in ("requeue", "remove"):
            assert await control(client, action, ids=[job]) == [(job, False)]
            wanted = {"account": "physics"} if who == "ann" else {"queue": "short"}
            assert await control(client, action, filter=wanted) == []
        assert (await client.post("/v1/jobs", json=HELD | {"user": "ada"})).status_code == 403
        operation = {"op": "set", "kind": "account", "name": "science", "entry": {"weight": 9.0}}
        for method, path, body in (
            ("PATCH", "/v1/policy", {"operations": [operation]}),
            ("POST", "/v1/api-tokens", {"user": who, "role": "admin"}),
            ("POST", "/v1/nodes/cordon", {"nodes": ["n1"]}),
            ("POST", "/v1/jobs/evict", {"ids": [job]}),
            ("GET", "/v1/audit", None),
        ):
            assert (await client.request(method, path, json=body)).status_code == 403

    with_people(hal_home, body)


def test_safety_a_narrowed_token_and_a_step_have_none_of_them(hal_home: Path) -> None:
    """Ann's token for the queue default; a step of a job of hers: both act as a user without delegated rights."""

    async def body(people: People) -> None:
        made = await make_token(people.hal, "ann", queues=["default"])
        async with with_secret(people.hal, made["secret"]) as narrowed:
            assert (await narrowed.get(f"/v1/jobs/{people.physics}")).status_code == 404
            assert await control(narrowed, "cancel", ids=[people.physics]) == [(people.physics, False)]
            limit = {"account": "physics", "user": "ada", "running": 1}
            assert (await narrowed.put("/v1/user-limits", json=limit)).status_code == 403
        cover = people.hal.api.delegations.cover
        assert cover(Identity(user="ann", role=Role.USER), "physics", "default")
        assert not cover(Identity(user="ann", role=Role.USER, step="x"), "physics", "default")
        narrow = Scope(accounts=("physics",))
        assert not cover(Identity(user="ann", role=Role.USER, scope=narrow), "physics", "default")

    with_people(hal_home, body)


def test_a_reading_token_of_a_coordinator_sees_and_ends_nothing(hal_home: Path) -> None:
    """As for everybody."""

    async def body(people: People) -> None:
        made = await make_token(people.hal, "ann", read_only=True)
        async with with_secret(people.hal, made["secret"]) as reading:
            assert (await reading.get(f"/v1/jobs/{people.physics}")).status_code == 200
            assert (await reading.post("/v1/jobs/cancel", json={"ids": [people.physics]})).status_code == 403

    with_people(hal_home, body)


def test_a_coordinator_limits_users_of_the_account(hal_home: Path) -> None:
    """An entry of the policy, with its author in the history; set again, it replaces; removed, it is gone."""

    async def body(people: People) -> None:
        asked = {"account": "physics", "user": "ada", "pending": 1}
        assert (await people.ann.put("/v1/user-limits", json=asked)).status_code == 200
        refused = await people.ada.post("/v1/jobs", json=HELD | {"account": "physics"})
        assert refused.status_code == 409 or refused.status_code == 503
        assert "physics/ada" in refused.text
        assert (await people.ann.put("/v1/user-limits", json=asked | {"pending": 5})).status_code == 200
        await submitted(people.ada, account="physics")
        (policy,) = [(await people.hal.http.get("/v1/policy")).json()]
        assert policy["policy"]["limits"]["physics/ada"]["pending"] == 5
        assert policy["user"] == "ann"
        gone = {"account": "physics", "user": "ada"}
        assert (await people.ann.delete("/v1/user-limits", params=gone)).status_code == 200
        assert (await people.ann.delete("/v1/user-limits", params=gone)).status_code == 404

    with_people(hal_home, body)


LIMITS: list[tuple[dict[str, Any], int]] = [
    ({"account": "arts", "user": "bob", "running": 0}, 403),
    ({"account": "", "user": "bob", "running": 0}, 403),
    ({"account": "*", "user": "bob", "running": 0}, 403),
    ({"account": "physics", "user": "", "running": 0}, 400),
    ({"account": "physics", "user": "ada"}, 400),
    ({"account": "physics", "user": "ada", "running": -1}, 400),
    ({"account": "physics", "user": "ada", "cohort": "c", "resources": {"cpu": 1}}, 400),
    ({"account": "physics", "user": "ada", "queue": "default", "running": 0}, 400),
    ({"account": "physics", "user": "admins", "running": 9}, 409),
]
"""What ann asks for, and the answer: other accounts, everybody, cohorts, queues, an administrator's entry."""


def test_safety_a_coordinator_limits_nobody_else_and_nothing_else(hal_home: Path) -> None:
    """Nothing of it is in the policy; a strange name of a user is a name."""
    theirs = Limit(account="physics", user="ada", running=3)
    config = Config(policy=Policy(queues=POLICY.queues, accounts=POLICY.accounts, limits={"physics/admins": theirs}))

    async def body(people: People) -> None:
        for asked, status in LIMITS:
            answer = await people.ann.put("/v1/user-limits", json=asked)
            assert answer.status_code == status, answer.text
        limits = (await people.hal.http.get("/v1/policy")).json()["policy"]["limits"]
        assert list(limits) == ["physics/admins"]
        strange = {"account": "physics", "user": "ada/../../x", "running": 0}
        assert (await people.ann.put("/v1/user-limits", json=strange)).status_code == 200

    with_people(hal_home, body, config)


def test_an_operator_drains_closes_and_opens_the_queue(hal_home: Path) -> None:
    """Drained: accepts nothing; closed: starts nothing either, and why says so; no other queue, no other field."""

    async def body(people: People) -> None:
        async def turn(queue: str, state: str) -> int:
            return (await people.quentin.post("/v1/queues/state", json={"queue": queue, "state": state})).status_code

        async def accepts() -> bool:
            job = HELD | {"queue": "short", "account": "arts"}
            return (await people.bob.post("/v1/jobs", json=job)).status_code == 201

        assert (await turn("short", "drained"), await accepts()) == (200, False)
        assert (await turn("short", "closed"), await accepts()) == (200, False)
        await people.bob.post("/v1/jobs/release", json={"ids": [people.in_short]})
        await people.hal.agent()
        why = (await people.bob.get(f"/v1/jobs/{people.in_short}/why")).json()
        assert "queue 'short' is closed" in why["message"]
        assert (await turn("short", "open"), await accepts()) == (200, True)
        assert await turn("long", "closed") == 403
        assert await turn("nowhere", "closed") == 403
        assert await turn("short", "removed") == 400
        assert (
            await people.mallory.post("/v1/queues/state", json={"queue": "short", "state": "closed"})
        ).status_code == 403

    with_people(hal_home, body)


def test_who_is_taken_off_the_list_has_the_rights_no_more(hal_home: Path) -> None:
    """At once: an admin removes ann from the coordinators."""

    async def body(people: People) -> None:
        operation = {"op": "set", "kind": "account", "name": "science", "entry": {"coordinators": None}}
        await people.hal.http.patch("/v1/policy", json={"operations": [operation]})
        assert (await people.ann.get(f"/v1/jobs/{people.physics}")).status_code == 404
        limit = {"account": "physics", "user": "ada", "running": 1}
        assert (await people.ann.put("/v1/user-limits", json=limit)).status_code == 403

    with_people(hal_home, body)


def test_safety_no_delegate_pushes_versions_of_the_policy_out_of_the_history(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many changes of one coordinator on one day, the first ones are done, the others are refused."""
    monkeypatch.setattr(delegated, "CHANGES_A_DAY", 3)

    async def body(people: People) -> None:
        asked = {"account": "physics", "user": "ada"}
        statuses = [
            (await people.ann.put("/v1/user-limits", json=asked | {"running": number})).status_code
            for number in range(5)
        ]
        assert statuses == [200, 200, 200, 503, 503]
        assert (await people.hal.http.put("/v1/user-limits", json=asked | {"running": 9})).status_code == 200

    with_people(hal_home, body)


def test_an_import_of_hal_toml_keeps_what_coordinators_have_set() -> None:
    """As far as accounts are still declared; an administrator's limit of the same name wins; admins' limits go."""
    before = Policy(
        accounts=POLICY.accounts,
        limits={
            "physics/ada": Limit(account="physics", user="ada", running=1, delegated=True),
            "physics/bob": Limit(account="physics", user="bob", running=1, delegated=True),
            "arts/bob": Limit(account="arts", user="bob", running=1, delegated=True),
            "few": Limit(user="*", running=1),
        },
    )
    ours = Limit(account="physics", user="bob", running=7)
    declared = Policy(accounts={"physics": Account()}, limits={"physics/bob": ours})
    kept = keep_delegated(declared, before)
    assert kept.limits == {"physics/bob": ours, "physics/ada": before.limits["physics/ada"]}


def test_access_is_explained_right_by_right(hal_home: Path) -> None:
    """Role by configuration, a token, what is delegated; where one may submit; which limits hold and who set them."""
    access = AccessSection(socket=str(hal_home / "public.sock"), operators=("ann",), users=("*",))

    async def body(people: People) -> None:
        await people.ann.put("/v1/user-limits", json={"account": "physics", "user": "ada", "running": 2})
        ann = (await people.hal.http.get("/v1/access", params={"user": "ann"})).json()
        found = [(one["right"], one["source"]) for one in ann["grants"]]
        assert ann["role"] == "operator"
        assert found == [
            ("role operator", "configuration"),
            ("role user", "configuration"),
            ("role user", "token"),
            ("coordinator of science", "delegation"),
        ]
        through = {one["name"]: one["coordinator_through"] for one in ann["accounts"]}
        assert through == {"science": "science", "physics": "science", "arts": ""}
        assert ann["limits"] == []
        ada = (await people.ada.get("/v1/access")).json()
        assert [(one["name"], one["bounds"], one["set_by"]) for one in ada["limits"]] == [
            ("physics/ada", {"running": 2}, "coordinator")
        ]

    config = Config(policy=POLICY, access=access)
    with_people(hal_home, body, config)


def test_a_role_by_a_group_of_the_machine_is_explained_by_the_group(hal_home: Path) -> None:
    groups = GroupsSection(operators=("daemon",), users=("lab",))
    access = AccessSection(socket=str(hal_home / "public.sock"), groups=groups)

    async def body(people: People) -> None:
        found = (await people.hal.http.get("/v1/access", params={"user": "daemon"})).json()
        assert found["role"] == "operator"
        assert ("role operator", "hal.toml: access.groups.operators names daemon") in [
            (one["right"], one["rule"]) for one in found["grants"]
        ]

    with_people(hal_home, body, Config(policy=POLICY, access=access))


def test_safety_nobody_but_an_operator_is_told_of_the_rights_of_others(hal_home: Path) -> None:
    """A user, a coordinator; their own is told, and so are nobody's secrets."""

    async def body(people: People) -> None:
        for client in (people.ann, people.mallory):
            assert (await client.get("/v1/access", params={"user": "ada"})).status_code == 403
            own = await client.get("/v1/access")
            assert own.status_code == 200
            assert "hal_" not in own.text
        assert (await people.hal.http.get("/v1/access", params={"user": "no such; user"})).status_code == 400

    with_people(hal_home, body)
