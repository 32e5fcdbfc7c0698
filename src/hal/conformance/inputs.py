"""Seeded random inputs for policies: read-only columns, edge cases first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.domain_score import DomainView, Gang, sums
from hal.core.interfaces.labels import Labels
from hal.core.interfaces.policy import Advice, BucketView, JobView, Near, NodeView, Owner, Request, RunView
from hal.core.kernels.structures.layout import INF
from hal.core.model import JobSpec, spec_from_plain
from hal.core.model.job import MAX_PRIORITY

CASES: Final = 60
"""Inputs of each check."""
MAX_ROWS: Final = 40
RESOURCES: Final = ("cpu", "memory", "gpu")
_LEVELS: Final = ("zone", "rack")
CLASSES: Final = 500
OWNERS: Final = 200
_CAPACITIES: Final = ((1_000, 64_000, 256_000), (1 << 30, 64 << 30, 1 << 40), (0, 0, 4_000, 8_000))
_SMALL: Final = (0, 1, 2)
"""Lengths that are tried first."""
NOW_MS: Final = 1_700_000_000_000
ABSENT: Final = 0.2
"""Part of the columns of advice, and of the values of the others, that are absent."""

Ints = NDArray[np.int64]


def read_only(column: NDArray[Any]) -> NDArray[Any]:
    """Return an equal array over memory that nobody can make writable."""
    if column.size == 0:
        empty = column.copy()
        empty.flags.writeable = False
        return empty
    return np.frombuffer(column.tobytes(), column.dtype).reshape(column.shape)


def lengths(chance: np.random.Generator) -> Iterator[int]:
    """How many rows or jobs each case has."""
    yield from _SMALL
    for _ in range(CASES - len(_SMALL)):
        yield int(chance.integers(3, MAX_ROWS + 1))


def some_of(count: int, chance: np.random.Generator) -> Ints:
    """Select some of the indices, in another order."""
    order = chance.permutation(count).astype(np.int64)
    return order[: int(chance.integers(0, count + 1))]


def advice(reads: tuple[str, ...], count: int, chance: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Create a column for each kind that a policy reads: absent, or of any size with gaps."""
    columns = {}
    for kind in reads:
        column = chance.choice((-1.0, 0.0, 0.25, 1.0, 1e3, 1e300), count) * chance.random(count)
        column[chance.random(count) < (1.0 if chance.random() < ABSENT else ABSENT)] = np.nan
        columns[kind] = read_only(column)
    return columns


def advice_at(columns: Advice, chosen: Ints) -> dict[str, NDArray[np.float64]]:
    """Select these places of every column, in this order."""
    return {kind: read_only(column[chosen]) for kind, column in columns.items()}


def jobs(count: int, chance: np.random.Generator, reads: tuple[str, ...] = ()) -> JobView:
    """Create waiting jobs: of any priority, some without a limit, some not yet eligible."""
    submit = NOW_MS - chance.integers(0, 1 << 32, count)
    wall = chance.integers(1, 1 << 33, count)
    wall[chance.random(count) < 0.2] = INF
    eligible = submit + chance.integers(0, 1 << 20, count)
    eligible[chance.random(count) < 0.1] = INF
    return JobView(
        job=read_only(chance.permutation(10 * count)[:count].astype(np.int64) + 1),
        priority=read_only(chance.integers(-MAX_PRIORITY, MAX_PRIORITY, count, endpoint=True)),
        submit_ms=read_only(submit),
        eligible_ms=read_only(eligible),
        walltime_ms=read_only(wall),
        planned_ms=read_only(np.where(wall < INF, np.maximum(wall // 2, 1), wall)),
        nodes=read_only(chance.integers(1, 65, count)),
        class_id=read_only(chance.integers(0, CLASSES, count)),
        owner_id=read_only(chance.integers(0, OWNERS, count)),
        advice=advice(reads, count, chance),
    )


def buckets(count: int, chance: np.random.Generator, reads: tuple[str, ...] = ()) -> BucketView:
    """Create buckets with waiting jobs."""
    return BucketView(
        class_id=read_only(chance.integers(0, CLASSES, count)),
        owner_id=read_only(chance.integers(0, OWNERS, count)),
        waiting=read_only(chance.integers(1, 1 << 20, count)),
        advice=advice(reads, count, chance),
    )


def buckets_at(view: BucketView, chosen: Ints) -> BucketView:
    """Select these buckets, in this order."""
    return BucketView(**_columns_at(view, chosen), advice=advice_at(view.advice, chosen))


def runs(count: int, chance: np.random.Generator) -> RunView:
    """Create attempts that run at NOW_MS: some without an account, QOS or limit, some that have just started."""
    start = NOW_MS - chance.integers(0, 1 << 30, count)
    start[chance.random(count) < 0.1] = NOW_MS
    wall = chance.integers(1, 1 << 33, count)
    wall[chance.random(count) < 0.2] = INF
    attempt = chance.integers(1, 5, count)
    columns: dict[str, NDArray[Any]] = {
        "job": chance.permutation(10 * count)[:count].astype(np.int64) + 1,
        "task": chance.integers(0, 100, count),
        "attempt": attempt,
        "queue": chance.choice(("default", "gpu", "short"), count),
        "account": chance.choice(("", "physics", "biology"), count),
        "user": chance.choice(("alice", "bob"), count),
        "qos": chance.choice(("", "low", "urgent"), count),
        "priority": chance.integers(-MAX_PRIORITY, MAX_PRIORITY, count, endpoint=True),
        "submit_ms": start - chance.integers(0, 1 << 30, count),
        "start_ms": start,
        "walltime_ms": wall,
        "end_ms": np.minimum(start + wall, INF),
        "taken": attempt - 1,
        "wasted": (NOW_MS - start) / 1_000 * chance.random(count),
        "nodes": chance.integers(1, 65, count),
        "amounts": np.stack([chance.choice(np.array(of, np.int64), count) for of in _CAPACITIES]),
    }
    return RunView(**{name: read_only(column) for name, column in columns.items()}, resources=RESOURCES)


def runs_at(view: RunView, chosen: Ints) -> RunView:
    """Select these attempts, in this order."""
    columns = {name: getattr(view, name) for name in RunView.__struct_fields__ if name not in ("amounts", "resources")}
    return RunView(
        **{name: read_only(column[chosen]) for name, column in columns.items()},
        amounts=read_only(view.amounts[:, chosen]),
        resources=view.resources,
    )


class Somebody(msgspec.Struct, frozen=True):
    """An owner."""

    queue: str
    account: str
    user: str
    qos: str


class Cluster:
    """A cluster with CLASSES classes and OWNERS owners, which always answers the same."""

    resources = RESOURCES

    def capacity(self) -> Ints:
        """The total of 100 nodes."""
        return np.array([max(of) * 100 for of in _CAPACITIES], np.int64)

    def request(self, class_id: int) -> Request:
        """What a task of the class uses on each of its nodes."""
        return request(np.random.default_rng(class_id))

    def owner(self, owner_id: int) -> Owner:
        """One of three queues, some without an account."""
        queue = ("default", "gpu", "short")[owner_id % 3]
        return Somebody(queue, f"a{owner_id % 7}" if owner_id % 7 else "", f"u{owner_id}", ("", "urgent")[owner_id % 2])


def jobs_at(view: JobView, chosen: Ints) -> JobView:
    """Select these jobs, in this order."""
    return JobView(**_columns_at(view, chosen), advice=advice_at(view.advice, chosen))


def _columns_at(view: JobView | BucketView, chosen: Ints) -> dict[str, Ints]:
    names = (name for name in view.__struct_fields__ if name != "advice")
    return {name: read_only(getattr(view, name)[chosen]) for name in names}


def nodes(count: int, chance: np.random.Generator, reads: tuple[str, ...] = ()) -> NodeView:
    """Create rows of different nodes, some without devices, partly free."""
    capacity = np.stack([chance.choice(np.array(of, np.float32), count) for of in _CAPACITIES])
    labels = [_labels(chance) for _ in range(count)]
    free = np.floor(capacity * chance.random(capacity.shape))
    return _nodes(capacity, free, chance.random(count) < 0.9, Labels(labels), advice(reads, count, chance))


def otherwise_free(view: NodeView, chance: np.random.Generator) -> NodeView:
    """The same nodes with other amounts free."""
    free = np.floor(view.capacity * chance.random(view.capacity.shape))
    return _nodes(view.capacity, free, view.up, view.labels, view.advice)


def nodes_at(view: NodeView, chosen: Ints) -> NodeView:
    """Select these rows, in this order."""
    labels = view.labels.at(chosen.tolist())
    return _nodes(
        view.capacity[:, chosen], view.free[:, chosen], view.up[chosen], labels, advice_at(view.advice, chosen)
    )


def _labels(chance: np.random.Generator) -> dict[str, str]:
    every = {"rack": f"r{chance.integers(0, 4)}", "price": str(chance.choice(("0.5", "2", "free"))), "ssd": ""}
    return {key: value for key, value in every.items() if chance.random() < 0.7}


def _nodes(capacity: NDArray[Any], free: NDArray[Any], up: NDArray[Any], labels: Labels, advised: Advice) -> NodeView:
    columns = (np.ascontiguousarray(part, np.float32) for part in (free, capacity))
    free_column, capacity_column = (read_only(part) for part in columns)
    return NodeView(
        rows=capacity.shape[1], resources=RESOURCES, free=free_column, capacity=capacity_column, up=read_only(up),
        labels=labels, advice=advised,
    )  # fmt: skip


def request(chance: np.random.Generator) -> Request:
    """Create a request: some cpu, often memory, sometimes devices."""
    amounts = np.array([int(chance.choice(of)) // int(chance.integers(1, 9)) for of in _CAPACITIES], np.int64)
    amounts[0] = max(int(amounts[0]), 1)
    amounts[1:][chance.random(2) < 0.4] = 0
    return Request(amounts=read_only(amounts), wanted=tuple(np.flatnonzero(amounts).tolist()))


def preferring(asked: Request, chance: np.random.Generator) -> Request:
    """The same request of a job that prefers something, or nothing."""
    near = tuple(
        Near(str(chance.choice(("app=web", "app/tier=db"))), str(chance.choice((*_LEVELS, "node"))), float(weight))
        for weight in np.round(chance.uniform(-1, 1, int(chance.integers(0, 3))), 2)
    )
    return Request(asked.amounts, asked.wanted, str(chance.choice(("", *_LEVELS))), near)


def gang(chance: np.random.Generator) -> Gang:
    """Create work of several nodes that waits."""
    asked = request(chance)
    return Gang(
        amounts=asked.amounts, wanted=asked.wanted, nodes=int(chance.integers(2, 9)),
        within=str(chance.choice(("", *_LEVELS))), queue=str(chance.choice(("default", "long"))),
        account=str(chance.choice(("", "physics"))), user=str(chance.choice(("alice", "bob"))),
        qos=str(chance.choice(("", "urgent"))),
    )  # fmt: skip


def domains(view: NodeView, asked: Gang, chance: np.random.Generator) -> DomainView:
    """Create a tree of domains over nodes, of which the first ones are in none; some hold work, alone or of a gang."""
    cuts = np.sort(chance.integers(0, view.rows + 1, 6))
    zones = list(pairwise(cuts.tolist()))
    paths: list[tuple[tuple[str, ...], int, int]] = [
        ((f"z{k}",), *zone) for k, zone in enumerate(zones) if zone[0] < zone[1]
    ]
    for zone, begin, end in list(paths):
        inner = np.unique(chance.integers(begin, end + 1, 3)).tolist()
        paths += [((*zone, f"r{k}"), *part) for k, part in enumerate(pairwise(inner))]
    first, last = (np.array([path[at] for path in paths], np.int64) for at in (1, 2))
    busy = view.up & (chance.random(view.rows) < 0.5)
    gangs = busy & (chance.random(view.rows) < 0.5)
    counted = (view.up, view.up & ~busy, holding(view, asked), gangs)
    return _domains(
        np.array(["/".join(path) for path, _first, _last in paths], np.str_),
        np.array([len(path) - 1 for path, _first, _last in paths], np.int64),
        first, last,
        *(sums(nodes, first, last).astype(np.int64) for nodes in counted),
    )  # fmt: skip


def domains_at(view: NodeView, whole: DomainView, chosen: Ints) -> tuple[NodeView, DomainView]:
    """Select these domains, in this order, and the nodes that are in them."""
    inside = np.zeros(view.rows + 1, np.bool_)
    for at in chosen.tolist():
        inside[whole.first[at] : whole.last[at]] = True
    ahead = np.concatenate(([0], np.cumsum(inside)))
    part = _domains(
        whole.name[chosen], whole.level[chosen], ahead[whole.first[chosen]], ahead[whole.last[chosen]],
        *(column[chosen] for column in (whole.nodes, whole.idle, whole.fits, whole.gang_nodes)),
    )  # fmt: skip
    return nodes_at(view, np.flatnonzero(inside)), part


def _domains(name: NDArray[np.str_], level: Ints, *columns: Ints) -> DomainView:
    first, last, up, idle, fits, gangs = (read_only(column) for column in columns)
    return DomainView(
        domains=name.shape[0], levels=_LEVELS, name=read_only(name), level=read_only(level), first=first, last=last,
        nodes=up, idle=idle, fits=fits, gang_nodes=gangs,
    )  # fmt: skip


def holding(view: NodeView, asked: Request | Gang) -> NDArray[np.bool_]:
    """The rows that have enough free."""
    fits: NDArray[np.bool_] = np.all(view.free >= asked.amounts[:, None], axis=0)
    return fits


def specs(seed: int) -> Iterator[JobSpec]:
    """Create jobs as an Admit sees them: with a user, from the smallest to the fullest."""
    chance = random.Random(seed)
    yield spec_from_plain({"command": ["true"], "user": "alice"})
    for number in range(CASES - 1):
        job: dict[str, Any] = {"command": ["work", str(number)], "user": chance.choice(("alice", "bob"))}
        job["request"] = chance.choice(("cpu=1", "cpu=0.5,memory=4GiB", "cpu=8,memory=1GiB,gpu=1", "cpu=32,gpu=8"))
        extras: dict[str, Any] = {
            "name": chance.choice(("train", "sweep")),
            "queue": chance.choice(("default", "gpu", "short")),
            "account": chance.choice(("physics", "biology")),
            "qos": chance.choice(("low", "urgent")),
            "priority": chance.randint(-MAX_PRIORITY, MAX_PRIORITY),
            "walltime": chance.choice(("90s", "1h", "7d", "365d")),
            "array": chance.choice((1, "0-99", "0-999999:2", "0-99%8")),
            "nodes": chance.choice((1, 2, 512)),
            "licences": {"matlab": chance.randint(1, 5)},
            "env": {"OMP_NUM_THREADS": "8"},
            "labels": {"project": "mars"},
            "constraints": ["gpu=a100"],
            "dependencies": ["afterok:12"],
            "begin_at_ms": NOW_MS,
            "deadline_ms": 2 * NOW_MS,
            "hold": True,
            "workdir": "/scratch",
            "retries": 3,
        }
        job.update({field: value for field, value in extras.items() if chance.random() < 0.35})
        yield spec_from_plain(job)
