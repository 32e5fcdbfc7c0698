"""Hypothesis strategies for the model: every spec that `check_spec` accepts can be generated, and nothing else."""

from __future__ import annotations

from hypothesis import strategies as st

from hal.core.model import (
    ArrayRange,
    Constraint,
    Dependency,
    DependencyKind,
    Dialect,
    Duration,
    Failed,
    GatePhase,
    GatePolicy,
    Interactive,
    JobGate,
    JobSpec,
    LimitSignal,
    OnHangup,
    OpenMode,
    Operator,
    Resources,
    Retries,
    check_spec,
    each_dependency,
)
from hal.core.model.array import MAX_ARRAY_INDEX, MAX_TASKS
from hal.core.model.bundle import CollectWhen
from hal.core.model.gate import LONGEST_DEADLINE_MS, SHORTEST_DEADLINE_MS, is_gate_name
from hal.core.model.job import MAX_COMMENT_CHARS, MAX_PRIORITY, SIGNALS
from hal.core.model.notification import Moment, Notification
from hal.core.model.units import MAX_AMOUNT

patterns = st.from_regex(r"[a-z*?]{1,20}(/[a-z*]{1,9})?", fullmatch=True)
amounts = st.integers(0, MAX_AMOUNT) | st.integers(0, 10_000)
durations = st.builds(Duration, st.integers(0, MAX_AMOUNT) | st.integers(0, 10_000_000))
resource_names = st.sampled_from(["cpu", "memory", "gpu", "disk"]) | st.from_regex(
    r"[a-z][a-z0-9._/-]{0,62}", fullmatch=True
).filter(lambda name: name not in ("cpus", "cores", "core", "gpus", "mem"))
resources = st.dictionaries(resource_names, st.integers(1, MAX_AMOUNT), min_size=1, max_size=5).map(Resources)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,127}", fullmatch=True)
terms = st.from_regex(r"app(/[a-z]{1,3})?=[a-z]{1,4}@(node|rack)", fullmatch=True)
labels = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9])?", fullmatch=True)
licence_names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,62}[A-Za-z0-9])?", fullmatch=True)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
comments = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=MAX_COMMENT_CHARS)
paths = st.from_regex(r"(/?[A-Za-z0-9 ._ü-]|%(%|[0-5]?[jAaTntNrux])){1,20}", fullmatch=True)
traceparents = st.from_regex(r"00-[0-9a-f]{31}[1-9a-f]-[0-9a-f]{15}[1-9a-f]-0[01]", fullmatch=True)
env_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


@st.composite
def dependencies(draw: st.DrawFn) -> Dependency:
    """One dependency, or a choice of several different ones, that a named array may have."""
    # No number: a person's job name that looks like one would be the other job.
    other = names.map(lambda name: f"x{name}"[:128])
    kinds = st.sampled_from([kind for kind in DependencyKind if kind is not DependencyKind.SINGLETON])
    single = st.builds(Dependency, other, kinds) | st.just(Dependency(kind=DependencyKind.SINGLETON))
    members = draw(st.lists(single, min_size=1, max_size=3, unique=True))
    return members[0] if len(members) == 1 else Dependency(any_of=tuple(members))


@st.composite
def arrays(draw: st.DrawFn) -> ArrayRange:
    """Any array whose indices are in range."""
    count = draw(st.integers(1, MAX_TASKS))
    step = draw(st.integers(1, MAX_ARRAY_INDEX // count))
    first = draw(st.integers(0, MAX_ARRAY_INDEX - (count - 1) * step))
    how = draw(st.sampled_from(["plain", "plain", "gaps", "items"]))
    if how == "gaps":
        return ArrayRange.parse(sorted(draw(st.sets(st.integers(0, 40) | st.integers(0, MAX_ARRAY_INDEX), min_size=1))))
    if how == "items":
        items = draw(st.lists(texts.filter(bool), min_size=1, max_size=4))
        return ArrayRange(len(items), 0, 1, draw(st.integers(0, 4)), items=tuple(items))
    return ArrayRange(count, first, step, draw(st.integers(0, MAX_TASKS)))


@st.composite
def constraints(draw: st.DrawFn) -> Constraint:
    """Any constraint: values where the operator takes some."""
    op = draw(st.sampled_from(Operator))
    takes_values = op in (Operator.IN, Operator.NOT_IN)
    values = draw(st.lists(labels, min_size=1, max_size=4)) if takes_values else []
    return Constraint(draw(labels), op, tuple(values))


secret_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


@st.composite
def gates(draw: st.DrawFn) -> tuple[JobGate, ...]:
    """Gates that one job may name: each name once for a phase, and no finalising one that goes elsewhere."""
    name = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?", fullmatch=True).filter(is_gate_name)
    gate = st.builds(
        JobGate,
        name=name,
        phase=st.sampled_from(GatePhase),
        deadline=st.builds(Duration, st.integers(SHORTEST_DEADLINE_MS, LONGEST_DEADLINE_MS)),
        policy=st.sampled_from(GatePolicy),
        argument=comments,
    ).filter(lambda one: (one.phase, one.policy) != (GatePhase.FINALISING, GatePolicy.ELSEWHERE))
    return tuple(draw(st.lists(gate, max_size=2, unique_by=lambda one: (one.name, one.phase))))


notifications = st.builds(
    Notification,
    on=st.lists(st.sampled_from(Moment), min_size=1, unique=True).map(tuple),
    to=st.sampled_from(("ann", "ann@example.org", "https://example.org/hook?token=1", "http://[::1]:8080")),
    each_task=st.booleans(),
)

retries = st.builds(
    Retries,
    max=st.integers(0, 1_000),
    backoff=durations,
    factor=st.floats(1.0, 100.0),
    longest=durations,
)


@st.composite
def job_specs(draw: st.DrawFn) -> JobSpec:
    """Any spec that may be submitted."""
    by_command = draw(st.booleans())
    array = draw(st.none() | arrays())
    name = draw(st.just("") | names)
    after = tuple(draw(st.lists(dependencies(), max_size=3)))
    if any(one.job == name or not _may(one, array, name) for one in each_dependency(after)):
        after = ()
    stdout = draw(st.just("") | paths)
    stderr = draw(st.just("") | paths)
    nodes = draw(st.integers(1, 100_000))
    first_node = draw(st.booleans())
    alone = array is None and (nodes == 1 or first_node) and not (stdout or stderr)
    interactive = draw(st.none() | st.sampled_from(Interactive)) if alone else None
    ship = draw(st.just("") | st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True))
    collect = tuple(draw(st.lists(patterns, max_size=3, unique=True)))
    walltime = draw(st.none() | st.builds(Duration, st.integers(2, MAX_AMOUNT)))
    before = st.integers(0, (walltime or MAX_AMOUNT) - 1).map(Duration)
    spec = JobSpec(
        name=name,
        queue=draw(st.just("default") | names),
        account=draw(st.just("") | names),
        user=draw(st.just("") | names),
        qos=draw(st.just("") | names),
        booking=draw(st.just("") | names),
        licences=draw(st.dictionaries(licence_names, st.integers(1, MAX_AMOUNT), max_size=3)),
        deadline_ms=draw(st.integers(0, MAX_AMOUNT)),
        priority=draw(st.integers(-MAX_PRIORITY, MAX_PRIORITY)),
        command=(draw(texts.filter(bool)), *draw(st.lists(texts, max_size=4))) if by_command else (),
        script="" if by_command else "#!/bin/sh\n" + draw(texts),
        arguments=() if by_command else tuple(draw(st.lists(texts, max_size=3))),
        dialect=draw(st.sampled_from(Dialect)),
        array=array,
        request=draw(st.just(Resources({"cpu": 1000})) | resources),
        nodes=nodes,
        first_node=first_node,
        exclusive=draw(st.booleans()),
        ranks_per_node=draw(st.integers(0, 256)) if nodes == 1 or first_node else 0,
        within=draw(st.just("") | st.sampled_from(("rack", "switch-1", "dc/row"))),
        spread=draw(st.just("") | st.sampled_from(("rack", "switch-1", "node"))),
        walltime=walltime,
        dependencies=after,
        on_dependency_failed=draw(st.none() | st.sampled_from(Failed)),
        begin_at_ms=draw(st.integers(0, MAX_AMOUNT)),
        hold=draw(st.booleans()),
        wait_for_change=draw(st.booleans()),
        env=draw(st.dictionaries(env_names, texts, max_size=4)),
        workdir="" if ship or collect else draw(st.just("") | texts.map("/".__add__)),
        umask=draw(st.just("") | st.from_regex(r"0?[0-7]{1,3}", fullmatch=True)),
        ship=ship,
        collect=collect,
        collect_when=draw(st.sampled_from(CollectWhen)) if collect else CollectWhen.SUCCEEDED,
        stdin=draw(st.just("") | paths) if interactive is None else "",
        stdout=stdout,
        stderr=stderr,
        interactive=interactive,
        on_hangup=draw(st.sampled_from(OnHangup)) if interactive else OnHangup.END,
        open_mode=draw(st.sampled_from(OpenMode)) if stdout or stderr else OpenMode.TRUNCATE,
        traceparent=draw(st.just("") | traceparents),
        retries=draw(st.just(Retries()) | retries),
        labels=draw(st.dictionaries(labels, st.just("") | labels, max_size=3)),
        comment=draw(st.just("") | comments),
        constraints=tuple(draw(st.lists(constraints(), max_size=3))),
        exclude=tuple(draw(st.lists(labels, max_size=3, unique=True))),
        movable=draw(st.none() | st.booleans()),
        apart=tuple(draw(st.lists(terms, max_size=2, unique=True))),
        prefer_apart=tuple(draw(st.lists(terms, max_size=2, unique=True))),
        prefer_together=tuple(f"{term}:7" for term in draw(st.lists(terms, max_size=2, unique=True))),
        together=tuple(draw(st.lists(terms, max_size=2, unique=True))),
        tolerate=tuple(draw(st.lists(labels, max_size=3, unique=True))),
        gates=draw(gates()),
        notify=tuple(draw(st.lists(notifications, max_size=3))),
        secrets=tuple(draw(st.lists(secret_names, max_size=3, unique=True))),
        signal=draw(st.none() | st.builds(LimitSignal, before, st.sampled_from(SIGNALS))),
    )
    return check_spec(spec)


def _may(one: Dependency, array: ArrayRange | None, name: str) -> bool:
    """Task by task needs an array, and a singleton needs a name."""
    if one.kind is DependencyKind.AFTERCORR:
        return array is not None
    return bool(name) or one.kind is not DependencyKind.SINGLETON
