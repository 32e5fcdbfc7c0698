"""Offers of machines that could be rented, as the plane keeps them: bounds, expiry, the store, a commit that failed."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.engine.events import INF, NodesOffered
from hal.core.model import EventKind, NotFoundError, OverloadedError, SpecError
from hal.core.model.offer import MAX_OFFERS, Offer
from hal.planes.tasks import Change, TaskPlane
from hal.planes.tasks.slices import finished
from hal.store import AppendEvents, PutMeta
from hal.store.views import Loaded
from tests.planes.tasks.small_plane import BY, SmallPlane


def offer(name: str = "large", expires_ms: int = 11_000, **fields: Any) -> Offer:
    """A machine of 8 cpu, until 11 s."""
    return Offer(name=name, **{"resources": {"cpu": 8_000}, "expires_ms": expires_ms, **fields})


def offered(change: Change) -> list[tuple[Offer, ...]]:
    """What the engine was told."""
    return [event.offers for event in change.engine if isinstance(event, NodesOffered)]


def facts(change: Change) -> dict[str, str | None]:
    """What is stored of it."""
    return {
        name: text for operation in change.operations if isinstance(operation, PutMeta)
        for name, text in operation.values.items()
    }  # fmt: skip


def noted(change: Change) -> list[tuple[EventKind, str, object]]:
    """Kind, cause and offer of each event about offers."""
    return [
        (event.kind, event.cause, event.payload["offer"])
        for operation in change.operations
        if isinstance(operation, AppendEvents)
        for event in operation.events
        if event.kind in (EventKind.OFFER_MADE, EventKind.OFFER_ENDED)
    ]


def test_an_offer_is_told_to_the_engine_and_noted_once() -> None:
    """Made again, it is told again and noted no more."""
    plane = SmallPlane()
    plane.plane.put_offer(offer(), BY, plane.now_ms)
    first = plane.commit()
    plane.plane.put_offer(offer(expires_ms=12_000), BY, plane.now_ms)
    second = plane.commit()
    assert (offered(first), noted(first)) == ([(offer(),)], [(EventKind.OFFER_MADE, "user:alice", "large")])
    assert (offered(second), noted(second)) == ([(offer(expires_ms=12_000),)], [])


def test_an_offer_ends_when_its_time_is_over() -> None:
    """Until then it is when the plane is due next."""
    plane = SmallPlane()
    plane.plane.put_offer(offer(), BY, plane.now_ms)
    plane.plane.put_offer(offer("later", expires_ms=20_000), BY, plane.now_ms)
    plane.commit()
    assert plane.plane.next_due_ms == 11_000
    finished(plane.plane.carrying_out_due(11_000))
    change = plane.commit()
    assert [one.name for one in plane.plane.offers] == ["later"]
    assert (noted(change), facts(change)) == ([(EventKind.OFFER_ENDED, "expiry", "large")], {"offer/large": None})


def test_an_offer_that_is_withdrawn_is_gone() -> None:
    """Again, there is none of that name."""
    plane = SmallPlane()
    plane.plane.put_offer(offer(), BY, plane.now_ms)
    plane.commit()
    plane.plane.withdraw_offer("large", BY)
    assert (offered(plane.commit()), plane.plane.next_due_ms) == ([()], INF)
    with pytest.raises(NotFoundError, match="there is no offer 'large'"):
        plane.plane.withdraw_offer("large", BY)


def test_offers_are_known_after_a_restart() -> None:
    """A plane that begins from the facts of the store tells its engine the same."""
    plane = SmallPlane()
    plane.plane.put_offer(offer(labels={"pool": "spot"}, count=3, price_microusd_per_hour=5), BY, plane.now_ms)
    stored = facts(plane.commit())
    again = TaskPlane(plane.plane.policy, plane.engine)
    events = again.load(
        Loaded(
            jobs=[], ranges={}, attempts={}, nodes=[], epoch=1, last_seq=0, last_job_id=0, now_ms=plane.now_ms,
            ended_dependencies={}, policy=None, meta={name: text for name, text in stored.items() if text is not None},
        )
    )  # fmt: skip
    assert again.offers == plane.plane.offers
    assert [event.offers for event in events if isinstance(event, NodesOffered)] == [plane.plane.offers]


def test_an_offer_that_was_not_committed_was_not_made() -> None:
    """The commit fails."""
    plane = SmallPlane()
    plane.plane.put_offer(offer(), BY, plane.now_ms)
    plane.plane.seal(plane.now_ms)
    plane.plane.undo()
    assert plane.plane.offers == ()


def test_offers_are_bounded() -> None:
    """Beyond the bound one that is there can still be made again."""
    plane = SmallPlane()
    for number in range(MAX_OFFERS):
        plane.plane.put_offer(offer(f"o{number}"), BY, plane.now_ms)
    with pytest.raises(OverloadedError, match=f"{MAX_OFFERS} offers are made already"):
        plane.plane.put_offer(offer("one-more"), BY, plane.now_ms)
    plane.plane.put_offer(offer("o7", count=2), BY, plane.now_ms)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "../x"}, "is not an offer's name"),
        ({"resources": {}}, "resources: 0 are named"),
        ({"resources": {"CPU": 1}}, "resources: 1 of 'CPU'"),
        ({"resources": {"cpu": 1 << 60}}, "resources: "),
        ({"labels": {"k" * 64: "v"}}, "labels: "),
        ({"count": 0}, "count: 0 is out of range"),
        ({"price_microusd_per_hour": -1}, "price_microusd_per_hour: -1"),
        ({"expires_ms": 1_001}, "expires_in: out of range"),
        ({"expires_ms": 8 * 86_400_000}, "expires_in: out of range"),
    ],
)
def test_an_offer_out_of_bounds_is_refused(fields: dict[str, Any], words: str) -> None:
    """One error names the field; nothing is offered."""
    plane = SmallPlane()
    with pytest.raises(SpecError, match=words):
        plane.plane.put_offer(offer(**{"name": "large", **fields}), BY, plane.now_ms)
    assert plane.plane.offers == ()
