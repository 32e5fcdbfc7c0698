"""JobSpec: encoding is exact and canonical, and everything malformed is refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import (
    ArrayRange,
    Constraint,
    Dependency,
    DependencyKind,
    Duration,
    GatePolicy,
    JobGate,
    JobSpec,
    Operator,
    Resources,
    Retries,
    SpecError,
    check_spec,
    from_json,
    spec_from_plain,
    to_json,
    to_plain,
)
from tests.core.model.specs import job_specs, retries
from tests.examples import examples


def plain(**fields: Any) -> dict[str, Any]:
    """A job that is right but for `fields`."""
    return {"command": ["true"], **fields}


@given(job_specs())
def test_safety_a_spec_survives_json_exactly(spec: JobSpec) -> None:
    """decode(encode(spec)) == spec, to the last unit, and encodes to the same bytes again."""
    data = to_json(spec)
    again = from_json(data, JobSpec)
    assert again == spec
    assert to_json(check_spec(again)) == data


@given(job_specs())
def test_safety_what_hal_prints_of_a_spec_is_accepted_as_input(spec: JobSpec) -> None:
    """`hal show -o json` can be submitted again."""
    assert spec_from_plain(to_plain(spec)) == spec


def test_one_core_that_was_written_is_told_from_none_that_was() -> None:
    """The default of a queue is for jobs that say nothing; to everything else both ask for the same."""
    said, silent = spec_from_plain(plain(request={"cpu": "1000m"})), spec_from_plain(plain())
    assert said == silent
    assert (to_json(said), to_json(silent)) == (b'{"command":["true"],"request":{"cpu":"1"}}', b'{"command":["true"]}')


def test_equal_specs_have_equal_bytes_however_they_were_written() -> None:
    """Defaults written out, another order of variables, other units: one canonical form."""
    short = spec_from_plain(plain(env={"A": "1", "B": "2"}, walltime="1h30m"))
    long = spec_from_plain(
        plain(
            env={"B": 2, "A": 1},
            walltime=5400,
            queue="".join(["def", "ault"]),
            retries={"max": 0, "backoff": "1000ms", "factor": 2},
            nodes=1,
            hold=False,
            array=None,
            on_node_lost=None,
        )
    )
    assert short == long
    assert to_json(short) == to_json(long) == b'{"command":["true"],"walltime":"1h30m","env":{"A":"1","B":"2"}}'


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ({"array": 100}, {"array": ArrayRange(100)}),
        ({"array": "0-99"}, {"array": ArrayRange(100)}),
        ({"array": "5-14:3"}, {"array": ArrayRange(4, 5, 3)}),
        ({"array": {"count": 2, "first": 7}}, {"array": ArrayRange(2, 7)}),
        ({"request": "4cpu,memory=1GiB"}, {"request": Resources({"cpu": 4_000, "memory": 1 << 30})}),
        ({"retries": 3}, {"retries": Retries(max=3)}),
        ({"dependencies": [42]}, {"dependencies": (Dependency("42"),)}),
        ({"dependencies": ["afterany:42"]}, {"dependencies": (Dependency("42", DependencyKind.AFTERANY),)}),
        ({"dependencies": [{"job": 42, "kind": "after"}]}, {"dependencies": (Dependency("42", DependencyKind.AFTER),)}),
        ({"dependencies": ["prepare"]}, {"dependencies": (Dependency("prepare"),)}),
        ({"constraints": ["gpu=a100|h100"]}, {"constraints": (Constraint("gpu", Operator.IN, ("a100", "h100")),)}),
        ({"constraints": ["rack!=r1"]}, {"constraints": (Constraint("rack", Operator.NOT_IN, ("r1",)),)}),
        (
            {"constraints": ["ssd", "!slow"]},
            {"constraints": (Constraint("ssd", Operator.EXISTS), Constraint("slow", Operator.ABSENT))},
        ),
        ({"env": {"N": 4, "F": 0.5, "T": True}}, {"env": {"N": "4", "F": "0.5", "T": "true"}}),
        ({"walltime": 90}, {"walltime": Duration(90_000)}),
    ],
)
def test_short_forms_mean_what_the_documents_say(written: dict[str, Any], means: dict[str, Any]) -> None:
    """What people write is brought to one declared shape."""
    spec = spec_from_plain(plain(**written))
    assert {name: getattr(spec, name) for name in means} == means


REFUSED: list[tuple[dict[str, Any], str]] = [
    (plain(nodes=2.0), "nodes: expected a whole number, got a fraction"),
    (plain(nodes=True), "nodes: expected a whole number, got true or false"),
    (plain(nodes=0), "nodes: "),
    (plain(nodes=100_001), "nodes: "),
    (plain(nodes="2"), "nodes: "),
    (plain(nodes=10**30), "nodes: "),
    (plain(priority=100_001), "priority: "),
    (plain(priority=10**30), "priority: "),
    (plain(priority=1.5), "priority: "),
    (plain(request={"cpu": 0.1234567}), "request.cpu: '0.1234567' is finer than 1/1000 cpu"),
    (plain(request={"cpu": math.nan}), "request.cpu: 'nan' is not an amount"),
    (plain(request={"cpu": -1}), "request.cpu: '-1' is negative"),
    (plain(request={"cpu": 0}), "request: no resource is given"),
    (plain(request={}), "request: no resource is given"),
    (plain(request={"memory": None}), "request.memory: expected a size"),
    (plain(walltime=0), "walltime: must be longer than 0"),
    (plain(walltime="soon"), "walltime: 'soon' is not a duration"),
    (plain(walltime=-1), "walltime: '-1' is negative"),
    (plain(walltime=True), "walltime: expected a duration"),
    (plain(begin_at_ms=10**30), "begin_at_ms: "),
    (plain(begin_at_ms=-1), "begin_at_ms: "),
    (plain(array=0), "array: 0 tasks"),
    (plain(array=-3), "array: '-3' is not a range"),
    (plain(array="9-0"), "array: '9-0' has no task"),
    (plain(array="0-9:0"), "array: '0-9:0' has no task"),
    (plain(array="0-9%0"), "array: '0-9%0' lets 0 tasks run at once"),
    (plain(array="1,3,x"), "array: 'x' is not a range"),
    (plain(array="1,3,3-5"), "array: 3 and 3-5 overlap"),
    (plain(array="1,,3"), "array: '1,,3' is not a range"),
    (plain(array="1,3%x"), "array: '1,3%x' is not a range"),
    (plain(array=[1, -3]), "array: -3 is not an index"),
    (plain(array=[]), "array: 0 indices"),
    (plain(array=f"1,{(1 << 53) + 1}"), "array: an index or step is above"),
    (plain(array=",".join(str(2 * n) for n in range(100_001))), "array: more than 100,000 parts"),
    (plain(array={"indices": "1,3", "first": 4}), "array: `indices` goes without `first`"),
    (plain(array={"count": 2, "indices": [[0, "3,1"]]}), "array.indices: not as HAL writes them"),
    (plain(array={"count": 3, "items": ["a"]}), "array: 1 items for 3 tasks"),
    (plain(array={"items": []}), "array: there is no item"),
    (plain(array={"items": ["a", ""]}), "array: item 1 is empty"),
    (plain(array={"items": ["a\0"]}), "array: item 0 has a NUL character"),
    (plain(array={"items": ["é" * 2_049]}), "array: item 0 is longer than 4096 bytes"),
    (plain(array={"items": ["x" * 4_096] * 1_025}), "array: 1,025 items of 4,198,400 bytes"),
    (plain(array=10_000_001), "array: 10000001 tasks"),
    (plain(array="0-" + "9" * 5_000), "array: "),
    (plain(array=10**5_000), "array: "),
    (plain(array=True), "array: "),
    (plain(array=1.5), "array: "),
    (plain(array={"count": 3, "first": 1 << 53}), "array: an index or step is above"),
    (plain(array={"count": 3, "frist": 1}), "unknown field 'frist' in array; did you mean 'first'?"),
    (plain(array={}), "array: "),
    (plain(name="a b"), "name: 'a b' is not a name"),
    (plain(name="a\n"), r"name: 'a\\n' is not a name"),
    (plain(name="ä"), "name: 'ä' is not a name"),
    (plain(name="-x"), "name: '-x' is not a name"),
    (plain(name="x" * 129), "name: "),
    (plain(name=7), "name: expected text, got a number"),
    (plain(name=None), "name: expected text, got nothing"),
    (plain(queue=""), "queue: '' is not a name"),
    (plain(user="a;b"), "user: "),
    (plain(account="a b"), "account: "),
    (plain(workdir="relative"), "workdir: 'relative' is not absolute"),
    (plain(workdir="/a\0b"), "workdir: a NUL character"),
    (plain(workdir="/" + "x" * 4_095), "workdir: longer than 4095 bytes"),
    (plain(env={"A-B": "1"}), "env: 'A-B' cannot be an environment variable"),
    (plain(env={"A\n": "1"}), "env: "),
    (plain(env={"": "1"}), "env: "),
    (plain(env={"A": None}), "env.A: expected text, got None"),
    (plain(env={"A": ["x"]}), "env.A: expected text"),
    (plain(env={"A": "x\0"}), "env.A: a NUL character"),
    (plain(env={"A": "\udc80"}), r"env.A: '\\udc80' is not valid Unicode"),
    (plain(env={"A": "x" * (128 << 10)}), "env: 'A' is longer than"),
    (plain(env={f"A{n}": "x" * 100_000 for n in range(11)}), "env: longer than"),
    (plain(env="A=1"), "env: "),
    (plain(labels={"a b": "c"}), "labels: 'a b=c' is not a label"),
    (plain(labels={"a": 1}), "labels.a: expected text, got 1"),
    (plain(labels={f"a{n}": "x" for n in range(65)}), "labels: 65; at most 64"),
    (plain(comment="x" * 201), "comment: 201 characters; at most 200 are allowed"),
    (plain(comment="a\nb"), r"comment: 'a\\nb' has a control character"),
    (plain(comment="a\0"), r"comment: 'a\\x00' has a control character"),
    (plain(comment="\x7f"), r"comment: '\\x7f' has a control character"),
    (plain(comment="\x9b2J"), r"comment: '\\x9b2J' has a control character"),
    (plain(comment="\udc80"), r"comment: '\\udc80' is not valid Unicode"),
    (plain(exclude=["n1", "n1"]), "exclude: 'n1' is named twice"),
    (plain(exclude=["a b"]), "exclude: 'a b' is not the name of a node"),
    (plain(exclude=[f"n{n}" for n in range(65)]), "exclude: 65 nodes; at most 64 are allowed"),
    (plain(gates=["../stage"]), "gates: '../stage' is not the name of a gate"),
    (plain(gates=["prolog"]), "gates: 'prolog' is not the name of a gate"),
    (plain(gates=["stage", "stage,policy=fail"]), "gates: 'stage' is named twice for preparing"),
    (plain(gates=[f"g{n}" for n in range(9)]), "gates: 9; at most 8 are allowed"),
    (plain(gates=["stage,deadline=2d"]), "gates.stage: a deadline of 2d"),
    (plain(gates=["stage,deadline=1ms"]), "gates.stage: a deadline of 1ms"),
    (plain(gates=["stage,phase=finalising,policy=elsewhere"]), "gates.stage: what has run cannot go elsewhere"),
    (plain(gates=["stage,policy=maybe"]), "gates"),
    (plain(gates=["stage,size=3"]), "gates: 'size' is not phase, deadline, policy or argument"),
    (plain(gates=["stage,policy=fail,policy=wait"]), "gates: 'policy' is given twice for 'stage'"),
    (plain(gates=[{"name": "stage", "argument": "a\nb"}]), "gates.stage: its argument has a control character"),
    (plain(gates=[{"name": "stage", "argument": "ü" * 2_049}]), "gates.stage: its argument has 4098 bytes"),
    (plain(comment=5), "comment: expected text, got a number"),
    (plain(stdout="%q"), "stdout: '%q' is not a pattern"),
    (plain(stderr="logs/"), "stderr: 'logs/' is a directory"),
    (plain(stdin="a\0"), "stdin: .* control character"),
    (plain(open_mode="append"), "open_mode: has no effect without stdout or stderr"),
    (plain(stdout="a", open_mode="add"), "open_mode"),
    (plain(traceparent="4bf9"), "traceparent: '4bf9' is not one of W3C Trace Context"),
    (plain(constraints=["="]), "constraints: '=' names no label"),
    (plain(constraints=["gpu="]), "constraints: '' is not a value of label 'gpu'"),
    (plain(constraints=["gpu=a||b"]), "constraints: '' is not a value of label 'gpu'"),
    (plain(constraints=["gpu==a"]), "constraints: '=a' is not a value of label 'gpu'"),
    (plain(constraints=[{"label": "gpu"}]), "constraints: 'gpu in' has 0 values"),
    (plain(constraints=[{"label": "gpu", "op": "exists", "values": ["a"]}]), "constraints: 'gpu exists' has 1 values"),
    (plain(constraints=[{"label": "gpu", "op": "near"}]), "constraints"),
    (plain(constraints=["x"] * 65), "constraints: 65; at most 64"),
    (plain(constraints="gpu=a100"), "constraints: "),
    (plain(constraints=[5]), "constraints"),
    (plain(dependencies=[""]), "dependencies: '': a job is expected at the end"),
    (plain(dependencies=["sometime:42"]), "dependencies: 'sometime:42' is not KIND:JOB"),
    (plain(dependencies=[True]), "dependencies"),
    (plain(dependencies=[-4]), "dependencies: '-4' is neither a job nor a name"),
    (plain(dependencies=["a b"]), "dependencies: 'a b': 'b' found where & or "),
    (plain(name="me", dependencies=["me"]), "dependencies: job 'me' would wait for itself"),
    (plain(dependencies=["1"] * 10_001), "dependencies: 10001; at most 10000"),
    (plain(retries={"max": -1}), "retries.max: "),
    (plain(retries=1_001), "retries.max: "),
    (plain(retries=True), "retries: "),
    (plain(retries={"factor": math.nan}), "retries.factor: "),
    (plain(retries={"factor": math.inf}), "retries.factor: "),
    (plain(retries={"factor": 0.5}), "retries.factor: "),
    (plain(retries={"mx": 1}), "unknown field 'mx' in retries; did you mean 'max'?"),
    (plain(retries={"backoff": "x"}), "retries.backoff: 'x' is not a duration"),
    (plain(signal={"before": "1m", "name": "KILL"}), "signal: 'KILL' is not one of"),
    (plain(signal={"before": "1h"}, walltime="1h"), "signal: would be sent before the job starts"),
    (plain(signal={}), "signal"),
    (plain(hold="yes"), "hold: expected true or false, got text"),
    (plain(on_node_lost="explode"), "on_node_lost: "),
    (plain(inputs=["a"]), "inputs: not supported"),
    (plain(outputs=["a"]), "outputs: not supported"),
    (plain(environment="conda"), "environment: not supported"),
    (plain(environment=False), "environment: not supported"),
    (plain(secrets=["../s"]), "secrets: '../s' is not the name of a secret"),
    (plain(secrets=["s", "s"]), "secrets: 's' is named twice"),
    (plain(secrets=[f"s{n}" for n in range(17)]), "secrets: 17; at most 16"),
    ({}, "command, script: neither given"),
    ({"command": ["a"], "script": "#!/bin/sh"}, "command, script: both given"),
    ({"command": "echo hello"}, "command: expected a list of words, got the text 'echo hello'"),
    ({"command": [""]}, "command: the program's name is empty"),
    ({"command": ["a", 1]}, "command"),
    ({"command": ["a\0b"]}, "command: a NUL character"),
    ({"command": ["\udcff"]}, "command: .* is not valid Unicode"),
    ({"command": ["a", "x" * (128 << 10)]}, "command: a word exceeds"),
    ({"command": ["a", *["x" * 100_000] * 11]}, "command: a word exceeds 131071 bytes, or all"),
    ({"script": "echo hello"}, "script: the first line must name its interpreter"),
    ({"script": "#!/bin/sh\n" + "x" * (4 << 20)}, "script: longer than"),
    ({"script": "#!/bin/sh\n\udc80"}, "script: .* is not valid Unicode"),
    (plain(requst={"cpu": 1}), "unknown field 'requst'; did you mean 'request'?"),
    (plain(wall_time="1h"), "unknown field 'wall_time'; did you mean 'walltime'?"),
    (plain(cpus=4), "unknown field 'cpus'; in files and JSON it is 'request.cpu'"),
    (plain(after=["1"]), "unknown field 'after'; in files and JSON it is 'dependencies'"),
    (plain(begin="now"), "unknown field 'begin'; in files and JSON it is 'begin_at_ms'"),
    (plain(zzzzzz=4), "unknown field 'zzzzzz'; valid fields are account, apart, arguments, array"),
    (plain(**{"": 4}), "unknown field ''"),
    (plain(constraints=[{"lable": "a"}]), r"unknown field 'lable' in constraints\[0\]; did you mean 'label'?"),
    (plain(dependencies=[{"jop": "1"}]), r"unknown field 'jop' in dependencies\[0\]; did you mean 'job'?"),
]


@pytest.mark.parametrize(("raw", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_a_malformed_job_is_refused_by_the_name_of_its_field(raw: dict[str, Any], message: str) -> None:
    """Every rule has its error; none repeats more than a little of the input."""
    with pytest.raises(SpecError, match=message) as refused:
        spec_from_plain(raw)
    assert len(str(refused.value)) < 700
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("raw", [None, 5, "true", ["true"], [["command", ["true"]]], True])
def test_what_is_not_a_table_is_no_job(raw: object) -> None:
    """A list of words is a command, not a job."""
    with pytest.raises(SpecError, match="a job is a table of fields"):
        spec_from_plain(raw)


def test_deep_nesting_is_refused_before_it_is_walked() -> None:
    """A million levels cost no more than seventeen."""
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SpecError, match="nested deeper than 16 levels"):
        spec_from_plain(plain(inputs=deep))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(anything, st.sampled_from(JobSpec.__struct_fields__))
@settings(max_examples=examples(150))
def test_safety_no_input_raises_anything_but_a_spec_error(value: Any, field: str) -> None:
    """Whatever stands in whatever field, it is a spec or a SpecError."""
    try:
        spec = spec_from_plain(plain(**{field: value}))
    except SpecError:
        return
    assert from_json(to_json(spec), JobSpec) == spec


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":NaN}', b"nul", b"{}x", '"\ud800"'])
def test_what_is_not_json_is_refused(data: bytes | str) -> None:
    """Broken, truncated, binary and endlessly nested texts give one clear error."""
    with pytest.raises(SpecError):
        from_json(data, JobSpec)


@given(retries, st.integers(1, 1_000))
def test_the_back_off_never_shrinks_and_never_passes_its_bound(value: Retries, retry: int) -> None:
    """min(backoff x factor**(n-1), longest), also where a float cannot hold it."""
    delay = value.delay_ms(retry)
    assert 0 <= delay <= value.longest
    assert value.delay_ms(retry + 1) >= delay
    assert value.delay_ms(1) == min(value.backoff, value.longest) or value.backoff > 1 << 53


def test_the_back_off_doubles() -> None:
    """1 s, 2 s, 4 s … up to 10 s."""
    policy = Retries(max=9, backoff=Duration(1_000), factor=2.0, longest=Duration(10_000))
    assert [policy.delay_ms(n) for n in range(1, 6)] == [1_000, 2_000, 4_000, 8_000, 10_000]


def test_an_array_gives_each_task_its_index() -> None:
    """5-14:3 is 5, 8, 11, 14."""
    array = ArrayRange.parse("5-14:3")
    assert [array.index(task) for task in range(array.count)] == [5, 8, 11, 14]


def test_the_title_is_the_name_or_the_program() -> None:
    """What lists show when a job has no name."""
    assert spec_from_plain(plain(name="x")).title == "x"
    assert spec_from_plain({"command": ["/usr/bin/env", "a"]}).title == "env"
    assert spec_from_plain({"script": "#!/bin/sh\n"}).title == "script"
    assert spec_from_plain(plain(array="0-9")).tasks == 10


def test_a_gate_may_be_written_as_text_whose_argument_is_the_rest() -> None:
    """Commas and equal signs of the argument are its own."""
    spec = spec_from_plain({"command": ["true"], "gates": ["stage,policy=elsewhere,deadline=10m,argument=a=1,b=2"]})
    assert spec.gates == (
        JobGate(name="stage", policy=GatePolicy.ELSEWHERE, deadline=Duration(600_000), argument="a=1,b=2"),
    )
