"""From specs to the engine's classes and owners, each as one shared value.

Pure. The engine remembers how it interned a tuple of classes by the tuple's identity, so the same tuple is handed over
until a new class or owner appears.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec, Liking, Match, OwnerSpec, Preference, Requirement, Term, grouped
from hal.core.model import JobSpec, Resources
from hal.core.model.affinity import affinity_of, followed, preferred_of
from hal.core.model.devices import GPU, WHOLE, beside
from hal.core.model.facts import DOMAIN_LABEL, GPUS_LABEL, NODE_LABEL, SANDBOX_LABEL, WHOLE_GPUS
from hal.core.model.gpu_reserves import Asked, asked_beside
from hal.core.model.job import Constraint, Operator
from hal.core.model.policy_scope import Owner
from hal.core.model.topology.packing import packed_level
from hal.planes.tasks.live.job import LiveJob

MAX_INTERNED = 4_096
"""Classes (and owners) kept; when more are seen, the table starts again from those of the next events."""

EMPTY: Final[Mapping[str, int]] = MappingProxyType({})
NOT_WHOLE: Final = Requirement(GPUS_LABEL, Match.NOT_IN, (WHOLE_GPUS,))
"""Of what asks for parts of GPUs: not on nodes that give whole ones only, and whole ones with a part nowhere there."""
_SANDBOXES: Final = (Constraint(SANDBOX_LABEL, Operator.EXISTS),)

ClassKey = tuple[
    Resources, int, str, tuple[Constraint, ...], tuple[Constraint, ...], tuple[str, ...], tuple[str, ...], str,
    tuple[tuple[str, int], ...], bool, tuple[tuple[str, ...], ...], Asked, Preference | None,
]  # fmt: skip


def requirements(constraints: tuple[Constraint, ...]) -> tuple[Requirement, ...]:
    """The engine's form of constraints."""
    return tuple(Requirement(rule.label, Match(rule.op.value), rule.values) for rule in constraints)


def _social(spec: JobSpec) -> tuple[tuple[str, ...], ...]:
    """What affinity asks of it, and what others may ask of it; () where nothing is."""
    labels = followed(spec.labels)
    return ((spec.user,), labels, spec.apart, spec.together) if labels or spec.apart or spec.together else ()


def _with_affinity(found: ClassSpec, spec: JobSpec) -> ClassSpec:
    """The class with its labels and terms, which see work of the same user only."""

    def terms(texts: tuple[str, ...]) -> tuple[Term, ...]:
        read = (affinity_of(text, spec.labels, "") for text in texts)
        return tuple(Term(f"{spec.user} {term.label}", term.level) for term in read)

    labels = tuple(f"{spec.user} {label}" for label in followed(spec.labels))
    return replace(found, labels=labels, apart=terms(spec.apart), together=terms(spec.together))


def preference_of(spec: JobSpec) -> Preference:
    """What it would rather have; its terms see work of the same user only, too."""
    near = []
    for texts, sign in ((spec.prefer_together, 1), (spec.prefer_apart, -1)):
        for text in texts:
            term, weight = preferred_of(text, spec.labels, "")
            near.append(Liking(Term(f"{spec.user} {term.label}", term.level), sign * weight))
    return Preference(spec.spread, tuple(near))


class Interning:
    """Shared values for equal requests and owners."""

    def __init__(
        self, *, gpu_parts: bool = False, domain_of: Callable[[str, str], str] = lambda node, level: ""
    ) -> None:
        """Args:
        gpu_parts: several jobs may share a GPU of a node that binds them.
        domain_of: the path of the domain of a level in which a node is, '' for none.
        """
        self._gpu_parts = gpu_parts
        self._domain_of = domain_of
        self._class_of: dict[ClassKey, ClassSpec] = {}
        self._owner_of: dict[Owner, OwnerSpec] = {}
        self._of_extension: dict[tuple[int, int, str], tuple[ClassSpec, OwnerSpec, ClassSpec, OwnerSpec]] = {}
        """By the identities of what a job asks for and whose it is, and the domain in which its base is: both, and the
        same of its extensions."""
        self._of_groups: dict[tuple[str, tuple[tuple[int, str], ...]], tuple[list[ClassSpec], ClassSpec]] = {}
        """By the level in one domain of which all are, and the identities of what each group asks for, and its name:
        these, and the class of all."""
        self._class_index: dict[int, int] = {}
        self._owner_index: dict[int, int] = {}
        self.classes: tuple[ClassSpec, ...] = ()
        self.owners: tuple[OwnerSpec, ...] = ()

    def class_of(self, spec: JobSpec, pool: tuple[Constraint, ...] = (), asked: Asked = ()) -> ClassSpec:
        """What each attempt of a task takes.

        Args:
            pool: what its queue asks of nodes.
            asked: what work of its queue asks for beside GPUs, if it needs none.
        """
        if spec.groups:
            return self._class_of_groups(spec, pool, asked)
        if spec.sandbox:
            pool += _SANDBOXES
        licences = tuple(sorted(spec.licences.items())) if spec.licences else ()
        # One node is within one domain wherever it is. What is packed is so until its wait is over (`jobs.packs`).
        within = (spec.within or packed_level(spec.pack)) if spec.nodes > 1 else spec.within if spec.has_base else ""
        social = _social(spec) if spec.labels or spec.apart or spec.together else ()
        preference = preference_of(spec) if spec.spread or spec.prefer_apart or spec.prefer_together else None
        key = (
            spec.request, spec.nodes, within, spec.constraints, pool, spec.exclude, spec.tolerate, spec.booking,
            licences, bool(spec.movable), social, asked, preference,
        )  # fmt: skip
        found = self._class_of.get(key)
        if found is None:
            if len(self._class_of) >= MAX_INTERNED:
                self._class_of.clear()
            rules = requirements(spec.constraints + pool)
            if spec.exclude:
                rules += (Requirement(NODE_LABEL, Match.NOT_IN, spec.exclude),)
            request = dict(spec.request)
            if gpus := request.get(GPU, 0):
                if gpus % WHOLE and (gpus > WHOLE or not self._gpu_parts):
                    rules += (NOT_WHOLE,)
                if self._gpu_parts:
                    request |= beside(gpus)
            elif asked:
                request |= asked_beside(request, asked)
            found = ClassSpec(
                request, spec.nodes, rules, spec.booking, dict(licences), within, spec.tolerate, bool(spec.movable)
            )
            if social:
                found = _with_affinity(found, spec)
            if preference is not None:
                found = replace(found, preference=preference)
            self._class_of[key] = found
        return found

    def _class_of_groups(self, spec: JobSpec, pool: tuple[Constraint, ...], asked: Asked) -> ClassSpec:
        """The class of the first group, which names those of the others: to the engine each group is a task."""
        parts: list[ClassSpec] = []
        for group in spec.groups:
            alone = replace(
                spec,
                groups=(),
                within="",
                pack="",
                nodes=group.nodes,
                request=group.request,
                constraints=spec.constraints + group.constraints,
                licences={} if parts else spec.licences,
            )
            parts.append(self.class_of(alone, pool, asked))
        within = spec.within or packed_level(spec.pack)
        key = (within, tuple((id(part), group.name) for part, group in zip(parts, spec.groups, strict=True)))
        found = self._of_groups.get(key)
        if found is None or found[0] != parts:
            if len(self._of_groups) >= MAX_INTERNED:
                self._of_groups.clear()
            named = [
                replace(part, group=group.name, within=within) for part, group in zip(parts, spec.groups, strict=True)
            ]
            found = self._of_groups[key] = parts, grouped(named)[0]
        return found[1]

    def owner_of(self, owner: Owner) -> OwnerSpec:
        """Whose work it is."""
        found = self._owner_of.get(owner)
        if found is None:
            if len(self._owner_of) >= MAX_INTERNED:
                self._owner_of.clear()
            found = self._owner_of[owner] = OwnerSpec(owner.queue, owner.account, owner.user, owner.qos)
        return found

    def of_extension(
        self, request: ClassSpec, owner: OwnerSpec, within: tuple[str, str] = ("", "")
    ) -> tuple[ClassSpec, OwnerSpec]:
        """What an extension of such a job takes, one node of the same shape, and whose work it is.

        Args:
            within: a level, and the path of its domain in which it is to be; empty: anywhere.
        """
        level, path = within
        found = self._of_extension.get((id(request), id(owner), path))
        if found is None:
            if len(self._of_extension) >= MAX_INTERNED:
                self._of_extension.clear()
            there = (Requirement(f"{DOMAIN_LABEL}{level}", Match.IN, (path,)),) if path else ()
            found = self._of_extension[id(request), id(owner), path] = (
                request,
                owner,
                replace(request, nodes=1, within="", constraints=request.constraints + there),
                replace(owner, extension=True),
            )
        return found[2], found[3]

    def class_index(self, request: ClassSpec) -> int:
        """Its index in `classes`; added when it is new. Indices hold until `fresh` begins another block."""
        index = self._class_index.get(id(request))
        if index is None:
            index = self._class_index[id(request)] = len(self.classes)
            self.classes = (*self.classes, request)
        return index

    def owner_index(self, owner: OwnerSpec) -> int:
        """Its index in `owners`; added when it is new."""
        index = self._owner_index.get(id(owner))
        if index is None:
            index = self._owner_index[id(owner)] = len(self.owners)
            self.owners = (*self.owners, owner)
        return index

    def indices(self, job: LiveJob, task: int) -> tuple[int, int]:
        """The indices of what such a task takes, and of whose work it is."""
        request, owner = job.request, job.owner
        if job.spec.is_extension(task):
            request, owner = self.of_extension(request, owner, self._place_of_base(job))
        return self.class_index(request), self.owner_index(owner)

    def _place_of_base(self, job: LiveJob) -> tuple[str, str]:
        """The level in one domain of which the extensions of a job are with its base, and the path of that domain."""
        base = job.active.get(0) if job.spec.within and job.spec.has_base else None
        if base is None:
            return "", ""
        return job.spec.within, self._domain_of(base.nodes[0], job.spec.within)

    def fresh(self) -> None:
        """Called between two blocks: start again when the tables have grown beyond their bound."""
        if len(self.classes) > MAX_INTERNED:
            self.classes = ()
            self._class_index.clear()
        if len(self.owners) > MAX_INTERNED:
            self.owners = ()
            self._owner_index.clear()
