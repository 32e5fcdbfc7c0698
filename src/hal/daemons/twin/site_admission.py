"""Apply a site's policy to each job of a log at submission, with the admission code of the controller.

Pure, as far as the site's rules are. Jobs that are equal in everything that admission reads are checked once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec, OwnerSpec, Preference
from hal.core.engine.config import EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.engine.policies import (
    DOMAIN_KERNELS,
    ORDER_KERNELS,
    PLACEMENT_KERNELS,
    PREEMPT_KERNELS,
    admit_named,
    domain_score_named,
    filter_named,
    order_named,
    preempt_named,
    score_named,
)
from hal.core.interfaces.admit import Admit
from hal.core.model import ConflictError, Constraint, Duration, JobSpec, Resources, SpecError
from hal.core.model.gpu_reserves import GpuReserves
from hal.core.model.policy import DEFAULT_QUEUE, Policy
from hal.core.model.policy_scope import Owner
from hal.core.model.topology.packing import packing_of
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.population import Population, check_known
from hal.daemons.twin.swf import Workload
from hal.planes.tasks import (
    Interning,
    LimitsByOwner,
    NeverStartsError,
    admitted,
    check_level,
    unpacked,
    with_whole_nodes,
)
from hal.runtime.time_zones import zone_offsets

IntArray = NDArray[np.int64]

_MILLI = 1000
_COMMAND = ("true",)
"""Admission requires a program; the twin runs none."""
_NAMES_HINT = "declare it, or assign the jobs with --accounts and --queue"


class Site(Struct, frozen=True, kw_only=True):
    """The parts of a hal.toml that matter to a replay.

    label: its name in tables and files. engine: with the policy in it. rules: of the site, for submissions.
    """

    label: str
    engine: EngineConfig
    rules: tuple[Admit, ...] = ()

    @property
    def policy(self) -> Policy:
        """The active policy."""
        return self.engine.policy or Policy()


def site_of(label: str, file: str, engine: EngineConfig, policy: Policy, rules: Sequence[str]) -> Site:
    """Build a site from the contents of its hal.toml; the policies that it names must already be registered.

    Raises:
        SpecError: it names a policy or rule that does not exist; the message names the file.
    """
    try:
        chosen = tuple(admit_named(name) for name in rules)
        for kind, name, built_in in (
            (order_named, engine.order, ORDER_KERNELS),
            (score_named, engine.placement, PLACEMENT_KERNELS),
            (domain_score_named, engine.domains, DOMAIN_KERNELS),
            (preempt_named, engine.preempt, PREEMPT_KERNELS),
        ):
            if name not in built_in:
                kind(name)
        for name in engine.filters:
            filter_named(name)
    except EngineError as error:
        raise SpecError(f"{file}: {error.message}", hint=error.hint) from error
    return Site(label=label, engine=replace(engine, policy=policy, zones=zone_offsets(policy)), rules=chosen)


class Refusal(Struct, frozen=True):
    """Jobs that the policy refused for one reason: what was checked (`walltime`, `nodes`, …), and an example
    message."""

    what: str
    jobs: int
    example: str


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """The outcome of admission for the jobs of a workload; arrays of shape (J,), in the workload's order.

    Attributes:
        packed: by index into `kinds`, of jobs that wait for one domain for some time: how long, in ms, and their class
            after it.
        extended: by index into `kinds`, of jobs with extensions: how many, their class, and their owner.
        groups: by the class of the first group of jobs that have several, those of the others.
        kind: index into `kinds`, which gives class, owner, walltime and priority; -1 if refused.
        kinds: (class, owner, walltime in s, priority); walltime 0: none.
        reason: index into `refusals`; -1 if admitted.
    """

    kind: IntArray
    kinds: IntArray
    classes: tuple[ClassSpec, ...]
    owners: tuple[OwnerSpec, ...]
    reason: IntArray
    refusals: tuple[Refusal, ...]
    packed: Mapping[int, tuple[int, int]]
    extended: Mapping[int, tuple[int, int, int]]
    groups: Mapping[int, tuple[int, ...]]


def check_names(site: Site, population: Population) -> None:
    """Check that the site knows the queues, accounts and users of the jobs.

    Raises:
        SpecError: it does not; the message names the first unknown one.
    """
    policy = site.policy
    used = [population.queues[place] for place in np.unique(population.queue).tolist()]
    check_known("queue", used, policy.queues, site.label, _NAMES_HINT)
    if policy.accounts:
        named = [population.accounts[place] for place in np.unique(population.account).tolist()]
        check_known("account", [name for name in named if name], policy.accounts, site.label, _NAMES_HINT)
    if policy.users:
        users = [population.users[place] for place in np.unique(population.user).tolist()]
        check_known("user", users, dict.fromkeys(policy.users), site.label, "leave `users` out of it for a replay")


def admit(site: Site, workload: Workload, machine: Machine, population: Population, now_ms: int) -> Admission:
    """Check every job of the workload against the site's policy and rules.

    Raises:
        InternalError: a rule is faulty.
    """
    judge = _Judge(site, machine, population, now_ms, workload.asked)
    what = (workload.procs, workload.limit_s) if workload.kind is None else (workload.kind, workload.limit_s)
    columns = (population.queue, population.account, population.user, *what)
    kind = np.fromiter((judge.kind(key) for key in zip(*(c.tolist() for c in columns), strict=True)), np.int64)
    refused = np.flatnonzero(kind < 0)
    reason = np.full(kind.size, -1, np.int64)
    reason[refused] = -kind[refused] - 1
    count = np.bincount(reason[refused], minlength=len(judge.refusals)).tolist()
    refusals = tuple(
        Refusal(what, jobs, example) for (what, example), jobs in zip(judge.refusals.items(), count, strict=True)
    )
    return Admission(
        kind=np.maximum(kind, -1),
        kinds=np.array(judge.kinds, np.int64).reshape(-1, 4),
        classes=tuple(judge.classes),
        owners=tuple(judge.owners),
        reason=reason,
        refusals=refusals,
        packed=judge.packed,
        extended=judge.extended,
        groups=judge.groups,
    )


def admitted_people(people: Population, admission: Admission) -> Population:
    """Return the owners of the jobs after admission: a rule of the site may have moved them to another queue or
    account."""
    rows = np.flatnonzero(admission.kind >= 0)
    if not rows.size:
        return people
    owner = admission.kinds[admission.kind[rows], 1]
    queues = list(dict.fromkeys([*people.queues, *(one.queue for one in admission.owners)]))
    accounts = list(dict.fromkeys([*people.accounts, *(one.account for one in admission.owners)]))
    queue, account = people.queue.copy(), people.account.copy()
    queue[rows] = np.array([queues.index(one.queue) for one in admission.owners], np.int64)[owner]
    account[rows] = np.array([accounts.index(one.account) for one in admission.owners], np.int64)[owner]
    return Population(tuple(queues), tuple(accounts), people.users, queue, account, people.user)


def owner_of(owner: OwnerSpec) -> Owner:
    """Convert an owner to the form that limits use."""
    return Owner(owner.queue, owner.account, owner.user, owner.qos)


def ignored_node_pools(site: Site, population: Population) -> Sequence[str]:
    """Return queues of the jobs whose node pool the twin cannot honour, because its nodes have no labels."""
    used = [population.queues[place] for place in np.unique(population.queue).tolist()]
    return [name for name in used if name in site.policy.queues and site.policy.queues[name].nodes]


Key = tuple[int, int, int, int, int]
"""Indexes of queue, account and user; processors, or which kind of job it is; requested seconds."""


class _Judge:
    """Runs admission once for each kind of job."""

    def __init__(
        self, site: Site, machine: Machine, population: Population, now_ms: int, asked: tuple[JobSpec, ...]
    ) -> None:
        self._site = site
        self._asked = asked
        self._machine = machine
        self._population = population
        self._now_ms = now_ms
        self._known: LimitsByOwner = {}
        self._seen: dict[Key, int] = {}
        self._kind_of: dict[tuple[int, int, int, int, tuple[int, int] | None, int], int] = {}
        self._class_of: dict[tuple[Resources, int, str, bool, str], int] = {}
        self._interning = Interning(gpu_parts=site.engine.gpu_parts)
        self._reserves = GpuReserves(site.engine.gpu_reserve, site.policy.queues)
        self._interned: dict[int, int] = {}
        """By identity of a class that the interning holds its index in `classes`."""
        self._owner_of: dict[OwnerSpec, int] = {}
        self.kinds: list[tuple[int, int, int, int]] = []
        self.classes: list[ClassSpec] = []
        self.owners: list[OwnerSpec] = []
        self.refusals: dict[str, str] = {}
        self.packed: dict[int, tuple[int, int]] = {}
        self.extended: dict[int, tuple[int, int, int]] = {}
        self.groups: dict[int, tuple[int, ...]] = {}

    def kind(self, key: Key) -> int:
        """Return its index in `kinds`, or -1 - its index in `refusals`."""
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._judged(key)
        return found

    def _judged(self, key: Key) -> int:
        limit_s = key[-1]
        asked = self._spec_of(key)
        site = self._site
        try:
            if asked.exclusive and self._machine.cluster is not None:
                asked = with_whole_nodes(asked, self._pool(asked), self._machine.cluster.rows)
            spec = admitted(
                asked, site.policy, user=asked.user, now_ms=self._now_ms, known=self._known, rules=site.rules
            )
            check_level(spec, self._machine.topology)
        except (SpecError, ConflictError) as error:
            what = error.what.value if isinstance(error, NeverStartsError) else error.message.partition(":")[0]
            self.refusals.setdefault(what, error.message)
            return -1 - list(self.refusals).index(what)
        walltime_s = -(-int(spec.walltime or limit_s * _MILLI) // _MILLI)
        one = (self._class(spec), self._owner(spec), walltime_s, spec.priority)
        packed = None
        if spec.pack and spec.nodes > 1:
            packed = (packing_of(spec.pack).wait_ms, self._class(unpacked(spec)))
        place = self._kind_of.setdefault((*one, packed, spec.extensions), len(self.kinds))
        if place == len(self.kinds):
            self.kinds.append(one)
            if packed is not None:
                self.packed[place] = packed
            if spec.extensions:
                self.extended[place] = (spec.extensions, *self._of_extension(one[0], one[1]))
        return place

    def _of_extension(self, of_base: int, owner_of_base: int) -> tuple[int, int]:
        """The class of an extension of such a job, and its owner."""
        request, owner = self._interning.of_extension(self.classes[of_base], self.owners[owner_of_base])
        return self._place(request), self._owner_place(owner)

    def _spec_of(self, key: Key) -> JobSpec:
        """What is submitted."""
        queue, account, user, what, limit_s = key
        people = self._population
        named = (people.queues[queue], people.accounts[account], people.users[user])
        if self._asked:
            return replace(self._asked[what], queue=named[0], account=named[1], user=named[2])
        nodes, cpus = self._machine.shape_of(what)
        return JobSpec(
            queue=named[0], account=named[1], user=named[2], nodes=nodes, request=Resources({"cpu": cpus * _MILLI}),
            walltime=Duration(limit_s * _MILLI), command=_COMMAND, within=self._machine.within_of(nodes),
            spread=self._machine.spread,
        )  # fmt: skip

    def _pool(self, spec: JobSpec) -> tuple[Constraint, ...]:
        """What its queue asks of nodes."""
        queue = self._site.policy.queues.get(spec.queue)
        return () if queue is None else queue.nodes

    def _class(self, spec: JobSpec) -> int:
        if self._asked:
            found = self._interning.class_of(spec, self._pool(spec), self._reserves.asked_in(spec.queue))
            place = self._place(found)
            if found.groups and place not in self.groups:
                self.groups[place] = tuple(map(self._place, found.groups))
            return place
        within = spec.within if spec.nodes > 1 else ""
        movable = bool(spec.movable)
        place = self._class_of.setdefault((spec.request, spec.nodes, within, movable, spec.spread), len(self.classes))
        if place == len(self.classes):
            preference = Preference(spec.spread) if spec.spread else None
            self.classes.append(
                ClassSpec(dict(spec.request), spec.nodes, within=within, movable=movable, preference=preference)
            )
        return place

    def _place(self, interned: ClassSpec) -> int:
        """The index of a class that the interning holds."""
        place = self._interned.setdefault(id(interned), len(self.classes))
        if place == len(self.classes):
            self.classes.append(interned)
        return place

    def _owner(self, spec: JobSpec) -> int:
        return self._owner_place(OwnerSpec(spec.queue or DEFAULT_QUEUE, spec.account, spec.user, spec.qos))

    def _owner_place(self, owner: OwnerSpec) -> int:
        place = self._owner_of.setdefault(owner, len(self.owners))
        if place == len(self.owners):
            self.owners.append(owner)
        return place
