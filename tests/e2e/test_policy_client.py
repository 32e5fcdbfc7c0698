"""The policy through the Python client, on a HAL with real processes."""

from __future__ import annotations

import asyncio

import pytest

from hal.client.addresses.address import Address
from hal.client.async_client import AsyncClient
from hal.core.model import ConflictError, SpecError
from hal.core.model.policy_change import Do, Kind, Operation
from tests.e2e.conftest import LiveHal


@pytest.mark.slow
def test_a_policy_is_changed_tried_and_put_back(own_hal: LiveHal) -> None:
    """A queue that is added takes a job; a dry run changes nothing; the old version is put back."""
    client = own_hal.up("--cpus", "1").client()
    first = client.policy()
    assert (first.version, first.user) == (1, "")
    add = Operation(op=Do.ADD, kind=Kind.QUEUE, name="short", entry={"max_walltime": "15m"})
    assert client.change_policy(add, dry_run=True).dry_run
    assert client.change_policy(add, note="for tests").version == 2
    with pytest.raises(ConflictError, match="already exists"):
        client.change_policy(add)
    assert client.submit(["true"], queue="short").wait().state == "succeeded"
    with pytest.raises(ConflictError, match="the current policy is version 2"):
        client.put_policy(first.policy, version=1)
    assert client.put_policy(first.policy, version=2).version == 3
    with pytest.raises(SpecError, match="'short' is not a queue"):
        client.submit(["true"], queue="short")

    async def same() -> None:
        async with AsyncClient(Address(home=own_hal.home)) as asking:
            assert (await asking.policy(2)).value.queues["short"].max_walltime == 900_000
            assert (await asking.policy()).version == 3
            assert await asking.licences() == client.licences() == []

    asyncio.run(same())
