"""hal.toml over the stored policy: what it adds is taken in, what it removes waits until somebody accepts that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hal.daemons.controller.config import Config, read_config
from tests.daemons.controller.running import Running, running

LIMITED = '[limits.each]\nuser = "*"\nrunning = 4\n'
EMPTY = ""
ADDS = '[queues.short]\nmax_walltime = "1h"\n[limits.each]\nuser = "*"\nrunning = 4\n'
LOOSER = '[limits.each]\nuser = "*"\nrunning = 5\n'
UNBOUND = '[limits.each]\nuser = "*"\npending = 9\n'


async def state(hal: Running) -> tuple[int, dict[str, Any], list[str], bool]:
    """Version and limits that hold, what is kept against the file, and whether people are warned."""
    policy = (await hal.http.get("/v1/policy")).json()
    health = (await hal.http.get("/v1/health")).json()
    warned = any("hal.toml was changed and is not in force" in one for one in health["warnings"])
    return policy["version"], policy["policy"].get("limits", {}), health["policy_kept"], warned


async def starts(root: Path, *texts: str) -> list[tuple[int, dict[str, Any], list[str], bool]]:
    """The state after a start with each of these files, one after the other."""
    found = []
    for text in texts:
        async with running(root, read_config(text)) as hal:
            found.append(await state(hal))
    return found


EACH = {"each": {"user": "*", "running": 4}}


def test_a_file_that_removes_a_limit_is_not_taken_in_by_any_restart(hal_home: Path) -> None:
    """The limit holds, and that is said, however often the controller starts; the file as it was is no news."""
    found = asyncio.run(starts(hal_home, LIMITED, EMPTY, EMPTY, LIMITED))
    assert found == [
        (1, EACH, [], False),
        (1, EACH, ["limits.each"], True),
        (1, EACH, ["limits.each"], True),
        (1, EACH, [], False),
    ]


def test_a_file_that_only_adds_or_changes_is_taken_in(hal_home: Path) -> None:
    """A new queue, another number; but not the loss of a bound."""
    found = asyncio.run(starts(hal_home, LIMITED, ADDS, LOOSER.replace("[limits", "[queues.short]\n[limits"), UNBOUND))
    assert [(version, kept) for version, _, kept, _ in found] == [
        (1, []), (2, []), (3, []), (3, ["queues.short", "limits.each.running"]),
    ]  # fmt: skip


def test_what_a_command_set_is_kept_when_the_file_changes_elsewhere(hal_home: Path) -> None:
    """A limit set over REST; then one walltime is changed in the file, which does not know the limit."""

    async def body() -> tuple[list[str], bool]:
        async with running(hal_home, read_config('[queues.short]\nmax_walltime = "1h"\n')) as hal:
            put = {"op": "put", "kind": "limit", "name": "cap", "entry": {"user": "*", "running": 1}}
            assert (await hal.http.patch("/v1/policy", json={"operations": [put]})).status_code == 200
        async with running(hal_home, read_config('[queues.short]\nmax_walltime = "2h"\n')) as hal:
            _, limits, kept, _ = await state(hal)
            return kept, "cap" in limits

    assert asyncio.run(body()) == (["limits.cap"], True)


def test_once_accepted_it_is_what_later_commands_change(hal_home: Path) -> None:
    """The policy is put as the file says; a limit set afterwards is not in the file, and the next start leaves it."""

    async def body() -> list[list[str]]:
        await starts(hal_home, LIMITED)
        async with running(hal_home, read_config(EMPTY)) as hal:
            put = await hal.http.put("/v1/policy", json={}, headers={"If-Match": "1"})
            assert put.status_code == 200, put.text
            accepted = await state(hal)
            add = {"op": "put", "kind": "limit", "name": "cap", "entry": {"user": "*", "running": 1}}
            await hal.http.patch("/v1/policy", json={"operations": [add]})
        async with running(hal_home, Config()) as hal:
            return [accepted[2], (await state(hal))[2], list((await state(hal))[1])]

    assert asyncio.run(body()) == [[], [], ["cap"]]
