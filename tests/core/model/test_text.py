"""Files of jobs: the same job in TOML, YAML and JSON is the same spec, and hostile text costs nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings

from hal.core.model import JobSpec, SpecError, plain_from_text, spec_from_plain, specs_from_text, to_plain
from hal.core.model.text import yaml_from_plain
from tests.core.model.specs import job_specs
from tests.examples import examples

TOML = """
name = "train"
command = ["python", "train.py", "--lr", "0.1"]
array = "0-9"
walltime = "1:30:00"
begin_at_ms = 1700000000000
constraints = ["gpu=a100|h100", "!slow"]
dependencies = ["afterany:42", 7]

[request]
cpu = 4
memory = "1.5GiB"

[env]
MODE = "on"
RATE = 0.5
DEBUG = true

[retries]
max = 3
backoff = "2s"
"""

YAML = """
name: train
command: [python, train.py, --lr, "0.1"]
array: 0-9
walltime: 1:30:00
begin_at_ms: 1700000000000
constraints: [gpu=a100|h100, "!slow"]
dependencies: [afterany:42, 7]
request: {cpu: 4, memory: 1.5GiB}
env:
  MODE: on
  RATE: 0.5
  DEBUG: true
retries: &again
  max: 3
  backoff: 2s
"""

JSON = """
{"name": "train", "command": ["python", "train.py", "--lr", "0.1"], "array": "0-9", "walltime": "1:30:00",
 "begin_at_ms": 1700000000000, "constraints": ["gpu=a100|h100", "!slow"], "dependencies": ["afterany:42", 7],
 "request": {"cpu": 4, "memory": "1.5GiB"}, "env": {"MODE": "on", "RATE": 0.5, "DEBUG": true},
 "retries": {"max": 3, "backoff": "2s"}}
"""


def test_the_three_formats_of_one_job_are_one_spec() -> None:
    """Clock times and words like `on` mean in YAML what they mean in the others."""
    toml, from_yaml, from_json = (
        specs_from_text(text, kind=kind) for text, kind in ((TOML, "toml"), (YAML, "yaml"), (JSON, "json"))
    )
    assert toml == from_yaml == from_json
    assert toml[0].walltime == 90 * 60_000
    assert toml[0].env == {"MODE": "on", "RATE": "0.5", "DEBUG": "true"}


@given(job_specs())
@example(JobSpec(command=("a",), env={"A": "\x85", "B": "\u2028x\ufeff", "C": "ä\n", "D": "0E0"}))
@settings(max_examples=examples(50))
def test_safety_a_printed_spec_reads_back_from_yaml_and_json(spec: JobSpec) -> None:
    """`hal show -o yaml` and `-o json` are specs; text that looks like a number or a date stays text."""
    plain = to_plain(spec)
    assert specs_from_text(json.dumps(plain), kind="json") == [spec]
    assert specs_from_text(yaml_from_plain(plain), kind="yaml") == [spec]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", '[{"command": ["a"]}, {"command": ["b"]}]'),
        ("json", '{"jobs": [{"command": ["a"]}, {"command": ["b"]}]}'),
        ("yaml", "- command: [a]\n- command: [b]\n"),
        ("yaml", "jobs:\n- command: [a]\n- command: [b]\n"),
        ("yaml", "\ufeff- command: [a]\n- command: [b]\n"),
        ("yaml", "- &x {command: [a]}\n- {<<: *x, command: [b]}\n"),
        ("toml", '[[jobs]]\ncommand = ["a"]\n[[jobs]]\ncommand = ["b"]\n'),
    ],
)
def test_a_file_may_hold_several_jobs(kind: str, text: str) -> None:
    """As a list, or as a table with a list named `jobs`; in order."""
    assert [spec.command for spec in specs_from_text(text, kind=kind)] == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json", "", "not JSON"),
        ("json", "{", "not JSON"),
        ("json", '{"command": ["a"]', "not JSON"),
        ("json", '{"command": ["a"], "name": "x", "name": "y"}', "'name' is given twice"),
        ("json", '{"command": ["a"], "env": {"A": "1", "A": "2"}}', "'A' is given twice"),
        ("json", '{"command": ["a"], "priority": NaN}', "NaN is not a JSON number"),
        ("json", '{"command": ["a"], "priority": Infinity}', "Infinity is not a JSON number"),
        ("json", '{"command": ["a"], "priority": ' + "9" * 5_000 + "}", "not JSON"),
        ("json", '{"command": ["\\ud800"]}', "not JSON: 'utf-8' codec"),
        ("json", '{"command": ["\ud800"]}', "command: .* is not valid Unicode"),
        ("json", "[" * 100_000, "JSON is nested too deeply"),
        ("json", "null", "no job in it"),
        ("json", "[]", "no job in it"),
        ("json", "{}", "no job in it"),
        ("json", "5", "a job is a table of fields"),
        ("json", '{"jobs": [{"command": ["a"]}], "name": "x"}', "there are fields beside `jobs`: name"),
        ("json", '{"jobs": []}', "no job in it"),
        (
            "json",
            '[{"command": ["a"]}, {"comand": ["b"]}]',
            "job 2 of 2: unknown field 'comand'; did you mean 'command'",
        ),
        ("json", "\x00\x01\x02", "not JSON"),
        ("toml", "command = [", "not TOML"),
        ("toml", 'command = ["a"]\nname = "x"\nname = "y"', "not TOML"),
        ("toml", "a=" + "[" * 100_000, "TOML is nested too deeply"),
        ("toml", "", "no job in it"),
        ("toml", 'command = ["a"]\npriority = ' + "9" * 5_000, "not TOML"),
        ("toml", 'command = ["a"]\nwalltime = 2024-01-01', "walltime: expected a duration"),
        ("toml", 'command = ["a"]\nname = 2024-01-01', "name: "),
        ("toml", 'command = ["a"]\n[request]\ncpu = nan', "request.cpu: 'nan' is not an amount"),
        ("yaml", "", "no job in it"),
        ("yaml", "command: [a", "not YAML"),
        ("yaml", "command: [a]\n---\ncommand: [b]", "not YAML: expected a single document"),
        ("yaml", "command: [a]\nname: x\nname: y", r"'name' is given twice \(line 3\)"),
        ("yaml", "command: [a]\nenv: {A: '1', A: '2'}", "'A' is given twice"),
        ("yaml", "command: [a]\n[1, 2]: x", "not YAML"),
        ("yaml", "!!python/object/apply:os.system ['true']", "not YAML"),
        ("yaml", "command: [a]\nname: !!binary aGFs", "name: "),
        ("yaml", "[" * 100_000, "not YAML"),
        ("yaml", "{a: " * 100_000, "not YAML"),
        ("yaml", "- " * 5_000 + "a", "not YAML"),
        ("yaml", "command: &a [*a]", "an alias refers to its own container"),
        ("yaml", "command: *nowhere", "not YAML"),
        ("yaml", "\x00", "not YAML"),
        ("yaml", "name: \x07", "not YAML"),
        ("ini", "a = b", "'ini' is not a format"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_text_that_is_no_job_file_gives_one_clear_error(kind: str, text: str, message: str) -> None:
    """Broken, truncated, binary, hostile, empty, ambiguous: refused, with the place where there is one."""
    with pytest.raises(SpecError, match=message) as refused:
        specs_from_text(text, kind=kind)
    assert len(str(refused.value)) < 700


def test_a_yaml_bomb_is_refused_before_it_unfolds() -> None:
    """Nine levels of ten aliases would be a thousand million values."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(SpecError, match="aliases expand to more than 2000000 values"):
        specs_from_text("\n".join(levels), kind="yaml")


def test_a_long_chain_of_aliases_is_refused() -> None:
    """Each stands in the next one: no bracket is deep, what they stand for is."""
    chain = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 5_000)]
    with pytest.raises(SpecError):
        specs_from_text("\n".join(chain), kind="yaml")


def test_a_text_beyond_the_bound_is_not_read() -> None:
    """Sixteen megabytes of spaces and one more."""
    with pytest.raises(SpecError, match="the text is longer than"):
        specs_from_text(" " * ((16 << 20) + 1), kind="yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("1:30", "1:30"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("0755", "0755"),
        ("0o17", 15),
        ("0x1F", 31),
        ("12", 12),
        ("-12", -12),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.5GiB", "1.5GiB"),
        ("=", "="),
        ("0b11", "0b11"),
    ],
)
def test_yaml_scalars_follow_the_core_schema_of_1_2(text: str, value: object) -> None:
    """No sexagesimal numbers, no dates, no `yes`: what looks like text is text."""
    read = plain_from_text(f"a: {text}", kind="yaml")["a"]
    assert read == value
    assert type(read) is type(value)


def test_a_dotted_key_of_very_many_parts_is_refused_before_it_is_read() -> None:
    """(L6) tomllib takes the square of a dotted key's parts in time: 100 KB of them took half a minute. Bare, quoted,
    in a header, in an inline table, with blanks between; dots in text, comments and numbers are no such thing."""
    bare, quoted = "a." * 50_000 + "a", '"a" . ' * 20_000 + "'b'"
    for text in (f"{bare} = 1", f"{quoted} = 1", f"[{bare}]", f"[[{quoted}]]", f"x = {{ {bare} = 1 }}", f"x=1\n{bare}"):
        with pytest.raises(SpecError, match="a key of more than 64 parts"):
            plain_from_text(text, kind="toml")
    dots = "." * 100
    fine = f'a.b = "{dots}\\"{dots}" # {dots}\nc = """{dots}\n"{dots}"""\nd = \'{dots}\'\ne = [{"1.5, " * 200}]\n'
    read = plain_from_text(fine + "f = '''" + dots + "'''\n", kind="toml")
    assert read["a"]["b"] == f'{dots}"{dots}'
    assert len(read["e"]) == 200


def test_a_key_given_twice_is_found_in_one_pass() -> None:
    """(L6) 30,000 different keys and one of them again at the end: each was counted in all of them."""
    keys = ",".join(f'"{n}":0' for n in range(30_000))
    with pytest.raises(SpecError, match="'29999' is given twice"):
        plain_from_text("{" + keys + ',"29999":0}', kind="json")


@pytest.mark.parametrize(
    "job",
    [
        {"comand" * 100_000: 1},
        {"request": {"comand" * 100_000: 1, "cpu": "x"}},
        {"retries": {"comand" * 100_000: 1}},
        {"on_node_lost": "requeu" * 100_000},
    ],
)
def test_an_endless_name_is_neither_compared_nor_repeated(job: dict[str, Any]) -> None:
    """(H5) One of 7 MB was compared with every field for nine seconds, and came back in the error."""
    with pytest.raises(SpecError) as caught:
        spec_from_plain({"command": ["true"], **job})
    assert len(caught.value.message) < 2_000
    assert "did you mean" not in caught.value.message
