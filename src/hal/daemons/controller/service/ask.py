"""What planes ask of the engine: what waits for nodes, and what is reserved. Cut into slices between turns of the loop.

An answer is kept until the engine's next change, so that many who ask cost one answer; then only the classes that have
changed are encoded again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import fields

from hal.core.engine.classes import ClassSpec
from hal.core.engine.events import INF
from hal.core.engine.why.emptying import Emptied
from hal.core.engine.why.wants import ClassWants, Reserved, Wants
from hal.core.model import OverloadedError
from hal.core.model.devices import counted_as, is_counted_beside
from hal.core.model.facts import GPUS_LABEL
from hal.daemons.controller.service.parts import Parts

T = TypeVar("T")

CLASSES_A_SLICE: Final = 500
"""Classes that are encoded in one turn of the loop."""
CLASSES_A_PART: Final = 1_000
"""Classes of one part of the answer: what is joined, and later sent, in one turn of the loop."""
LOOK_EVERY_MS: Final = 100
"""A request that waits for a change looks this often."""
MAX_WAITING: Final = 200
"""Requests that wait for a change."""
_ENCODER: Final = msgspec.json.Encoder()


class ConstraintView(Struct, frozen=True):
    """A condition on a node's labels."""

    label: str
    op: str
    values: tuple[str, ...]


class WantView(Struct, frozen=True, gc=False):
    """Waiting work of one class: alike in what each start takes."""

    request: dict[str, int]
    """Of each node, in base units."""
    nodes: int
    """Distinct nodes that each start takes."""
    constraints: list[ConstraintView]
    within: str
    """The level of the topology of which one domain has them; empty: anywhere."""
    booking: str
    licences: dict[str, int]
    jobs: int
    """That wait; a job whose tasks differ may count several times."""
    tasks: int
    """That wait: as many starts."""
    queues: dict[str, int]
    """Jobs by queue; the ten with the most."""
    more_queues: int
    users: dict[str, int]
    """Jobs by user; the ten with the most."""
    more_users: int
    head: str
    """The job that is first in order."""
    head_since_ms: int
    """Since when it could have started."""
    short: str
    """What is lacking: `nodes` (too few that are up could hold it), `resources` (too few have them free), `turn` (they
    are free, and reserved or about to be used), or the rule that keeps the first job waiting (`limit`, `hours`,
    `licences`, ...)."""
    resource: str
    """The resource of which no node has enough; empty: each is there, but not together on enough nodes."""
    short_by: int
    """Of that resource on a node, in base units; without one, nodes."""
    fits_now: int
    """Nodes on which it would fit now."""
    fits_ever: int
    """Nodes that are up and could hold it when they are empty."""


class WantsView(Struct, frozen=True, kw_only=True):
    """Waiting work by class, in the order of the first jobs."""

    version: str
    """Equal only for equal wants; also the `ETag`."""
    now_ms: int
    classes: list[WantView]


class ReservationView(Struct, frozen=True, kw_only=True):
    """Nodes that are set aside for a waiting task."""

    job: str
    task: int
    """Counted from the job's first waiting task."""
    start_ms: int | None
    """Null: not known."""
    end_ms: int | None
    """By its planned time; null: it has none."""
    nodes: list[str]
    claimed: bool
    """Nothing else starts on these nodes before it; else what ends before `start_ms` may."""


class ReleasableView(Struct, frozen=True, kw_only=True):
    """A rented node that could be emptied now, by itself: all that runs there may be moved, and has room elsewhere."""

    node: str
    price: float
    """As advised."""
    tasks: int
    """Running tasks that would be moved."""
    lost_node_s: float
    """What they would lose: seconds of a whole node."""
    empty_ms: int | None
    """When it will be empty by itself; null: not known."""
    pays: bool
    """Whether what is gained is at least `compaction` times what is lost."""


class PlanView(Struct, frozen=True, kw_only=True):
    """Reservations of waiting work, in order of rank."""

    now_ms: int
    reservations: list[ReservationView]
    truncated: bool
    """There are more than are shown."""
    releasable: list[ReleasableView] = []
    """Nodes with advice of the kind `price`, at most 100, the dearest first; for operators where `compaction` is on."""


class EncodedWants(Struct, frozen=True):
    """The wants as JSON."""

    version: str
    parts: tuple[bytes, ...]


class _Kept(Struct, frozen=True):
    """The newest answer about everybody's work, and what it was made of."""

    encoded: EncodedWants
    wants: Wants
    texts: _Texts


class _Texts(Struct, frozen=True):
    """JSON of classes by their positions in the wants."""

    fixed: list[bytes]
    """What follows from the class alone: an object that is not closed."""
    whole: list[bytes]


_FIXED: Final = WantView.__struct_fields__.index("jobs")
"""So many first fields of a `WantView` follow from the class alone; the others depend on what waits."""
_Waiting: Final[Callable[..., Struct]] = msgspec.defstruct(
    "_Waiting", [(field.name, field.type) for field in fields(WantView)[_FIXED:]], frozen=True, gc=False
)
"""These others."""


class Ask:
    """Answers about what waits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kept: _Kept | None = None
        self._waiting = 0

    @property
    def version(self) -> str:
        """Of the wants as they are."""
        return f"{self._parts.committer.epoch}-{self._parts.engine.wants_version()}"

    async def wants(self, user: str = "") -> EncodedWants:
        """Gather waiting work by class.

        Args:
            user: only theirs; '': everybody's.
        """
        await self._parts.runtime.sleep(0)  # what read the request was a turn of its own
        version = self.version
        if not user and self._kept is not None and self._kept.encoded.version == version:
            return self._kept.encoded
        now_ms = self._parts.clock.now_ms()
        found = await self._parts.sliced(self._parts.engine.wants(now_ms, user))
        texts = await self._encode(found)
        head, tail = _ENCODER.encode(WantsView(version=version, now_ms=now_ms, classes=[])).split(b"[]", 1)
        parts = [head + b"["]
        order = found.order.tolist()
        for at in range(0, len(order), CLASSES_A_PART):
            some = [texts.whole[position] for position in order[at : at + CLASSES_A_PART]]
            parts.append((b"," if at else b"") + b",".join(some))
            await self._parts.runtime.sleep(0)
        answer = EncodedWants(version, (*parts, b"]" + tail))
        if not user:
            self._kept = _Kept(answer, found, texts)
        return answer

    async def _encode(self, found: Wants) -> _Texts:
        """Encode each class, unless its text is known from the newest answer."""
        kept = self._kept
        if kept is None:
            changed = np.arange(len(found.specs))
            texts = _Texts([b""] * len(found.specs), [b""] * len(found.specs))
        else:
            was, same = found.unchanged_since(kept.wants)
            await self._parts.runtime.sleep(0)
            changed = np.flatnonzero(~same)
            fixed, whole = kept.texts.fixed, kept.texts.whole
            texts = _Texts(
                [fixed[at] if at >= 0 else b"" for at in was.tolist()],
                [whole[at] if at >= 0 else b"" for at in np.where(same, was, -1).tolist()],
            )
        for at in range(0, changed.shape[0], CLASSES_A_SLICE):
            positions = changed[at : at + CLASSES_A_SLICE]
            rows = found.rows(positions)
            # One a line: no text in JSON has a line break.
            lines = _ENCODER.encode_lines([_waiting(one) for one in rows]).splitlines()
            for position, one, line in zip(positions.tolist(), rows, lines, strict=True):
                if not texts.fixed[position]:
                    texts.fixed[position] = _ENCODER.encode(_fixed(one.spec))[:-1]
                texts.whole[position] = b"%b,%b" % (texts.fixed[position], line[1:])
            await self._parts.runtime.sleep(0)
        return texts

    async def change(self, version: str, wait_s: float) -> None:
        """Wait until the wants have another version, or the time has passed.

        Raises:
            OverloadedError: too many wait.
        """
        if self._waiting >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} requests wait for wants already", hint="try again in a second")
        runtime = self._parts.runtime
        until_ms = runtime.monotonic_ms() + round(wait_s * 1000)
        self._waiting += 1
        try:
            while self.version == version and runtime.monotonic_ms() < until_ms and not self._parts.ends.closed:
                await runtime.sleep(LOOK_EVERY_MS)
        finally:
            self._waiting -= 1

    async def plan(self, user: str = "") -> PlanView:
        """Gather reservations.

        Args:
            user: only of their jobs; '': everybody's.
        """
        found, more = await self._parts.sliced(self._parts.engine.reserved())
        shown = [_reservation(one) for one in found if not user or self._is_of(one.job, user)]
        now_ms = self._parts.clock.now_ms()
        rented = [] if user else await self._parts.sliced(self._parts.engine.releasable(now_ms))
        return PlanView(
            now_ms=now_ms, reservations=shown, truncated=more, releasable=[_releasable(one) for one in rented]
        )

    def _is_of(self, job: int, user: str) -> bool:
        live = self._parts.plane.job(job)
        return live is not None and live.user == user


def _releasable(one: Emptied) -> ReleasableView:
    return ReleasableView(
        node=one.node,
        price=one.price,
        tasks=one.tasks,
        lost_node_s=one.lost_ms / 1000,
        empty_ms=None if one.empty_ms >= INF else one.empty_ms,
        pays=one.pays,
    )


def _fixed(spec: ClassSpec) -> dict[str, object]:
    """The fields of a `WantView` that follow from the class."""
    constraints = [ConstraintView(rule.key, rule.match.value, rule.values) for rule in spec.constraints]
    request = {name: amount for name, amount in spec.request.items() if not is_counted_beside(name)}
    constraints = [one for one in constraints if one.label != GPUS_LABEL]
    values = (request, spec.nodes, constraints, spec.within, spec.booking, spec.licences)
    return dict(zip(WantView.__struct_fields__[:_FIXED], values, strict=True))


def _waiting(one: ClassWants) -> Struct:
    return _Waiting(
        one.jobs, one.tasks, one.queues, one.more_queues, one.users, one.more_users, str(one.head), one.head_since_ms,
        one.short, counted_as(one.resource), one.short_by, one.fits_now, one.fits_ever,
    )  # fmt: skip


def _reservation(one: Reserved) -> ReservationView:
    return ReservationView(
        job=str(one.job),
        task=one.task,
        start_ms=None if one.start_ms >= INF else one.start_ms,
        end_ms=None if one.end_ms >= INF else one.end_ms,
        nodes=one.nodes,
        claimed=one.claimed,
    )
