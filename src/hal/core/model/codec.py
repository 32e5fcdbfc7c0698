"""Text to values and back: TOML, YAML and JSON job specs, JSON for everything, with errors that help.

Pure. An unknown field is refused with the nearest valid name; a value of the wrong kind is refused with the path to it.
Encoding is canonical (field order as declared, defaults omitted), so equal values give equal bytes.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from hal.core.model.errors import SpecError
from hal.core.model.job import ArrayRange, Constraint, Dependency, JobSpec, check_spec
from hal.core.model.resources import Resources
from hal.core.model.units import Duration, parse_duration

T = TypeVar("T")

MAX_SPEC_BYTES = 16 << 20
"""Largest text accepted as one spec."""
MAX_NESTING = 16
"""Deepest table inside a spec."""

_UNKNOWN = re.compile(r"contains unknown field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)
_AT = re.compile(r"(.*) - at `\$?\.?(.*)`$", re.DOTALL)


def enc_hook(value: Any) -> Any:
    """msgspec's hook for the model's own types."""
    if isinstance(value, Resources):
        return value.plain()
    if isinstance(value, Duration):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def dec_hook(kind: type, value: Any) -> Any:
    """msgspec's hook for the model's own types; accepts what people write."""
    try:
        if kind is Duration:
            return parse_duration(value, field="duration")
        if kind is Resources:
            return Resources.parse(value)
    except SpecError as error:
        # msgspec adds the path to ValueErrors only; `convert` finds the SpecError behind it.
        raise ValueError(error.message) from error
    raise NotImplementedError(f"{kind.__name__} has no JSON form")


def schema_hook(kind: type) -> dict[str, Any]:
    """JSON Schema of the model's own types."""
    if kind is Duration:
        return {
            "anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}],
            "description": "a duration: 90m, 1d2h, 02:30:00, or a number of seconds",
            "examples": ["90m", "1d2h", 5400],
        }
    if kind is Resources:
        return {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}]},
            "description": "amounts by resource name: cpu in cores, memory and disk as sizes, gpu in devices",
            "examples": [{"cpu": 4, "memory": "1.5GiB", "gpu": 1}],
        }
    raise NotImplementedError(f"{kind.__name__} has no JSON Schema")


def to_json(value: Any) -> bytes:
    """Canonical JSON of any value of the model."""
    return msgspec.json.encode(value, enc_hook=enc_hook)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """The value of that type in a JSON text.

    Raises:
        SpecError: not JSON, or not a `kind`; names the field.
    """
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise SpecError("JSON is nested too deeply") from error
    return convert(raw, kind)


def convert(raw: Any, kind: type[T]) -> T:
    """The value of that type in plain data (dicts, lists, numbers, text).

    Raises:
        SpecError: names the field, what was found there, and the nearest valid name for an unknown one.
    """
    try:
        return msgspec.convert(raw, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        cause = error.__cause__.__cause__ if error.__cause__ else None
        if isinstance(cause, SpecError):
            raise SpecError(_placed(str(error), cause.message), hint=cause.hint) from error
        raise SpecError(*_explain(str(error), kind)) from error


def to_plain(value: Any) -> Any:
    """Plain data (dicts, lists, numbers, text) of a value of the model; what YAML and tables are made from."""
    return msgspec.json.decode(to_json(value))


def spec_from_plain(raw: Any) -> JobSpec:
    """A checked spec from plain data as people write it (`array: 0-99`, `constraints: ['gpu=a100']` …).

    Raises:
        SpecError: malformed; nothing is partly accepted.
    """
    if not isinstance(raw, Mapping):
        raise SpecError(f"a job is a table of fields, not {type(raw).__name__}")
    if _depth(raw) > MAX_NESTING:
        raise SpecError(f"nested deeper than {MAX_NESTING} levels")
    return check_spec(convert(_loosened(raw), JobSpec))


def specs_from_text(text: str, *, kind: str) -> list[JobSpec]:
    """The jobs in a file: one job, a list of jobs, or a table with a list named `jobs`.

    Args:
        text: the file's text.
        kind: 'toml', 'yaml' or 'json'.
    Raises:
        SpecError: not that format, no job in it, or a job that is malformed (its place in the list is named).
    """
    if len(text) > MAX_SPEC_BYTES:
        raise SpecError(f"the text is longer than {MAX_SPEC_BYTES} bytes")
    try:
        raw = _READERS[kind](text)
    except KeyError:
        raise SpecError(f"'{kind}' is not a format", hint="use toml, yaml or json") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError, msgspec.DecodeError, RecursionError, ValueError) as error:
        raise SpecError(f"not {kind.upper()}: {' '.join(str(error).split())}") from error
    if isinstance(raw, Mapping) and set(raw) == {"jobs"}:
        raw = raw["jobs"]
    items = raw if isinstance(raw, list) else [raw]
    if not items or raw is None:
        raise SpecError("no job in it")
    specs = []
    for position, item in enumerate(items):
        try:
            specs.append(spec_from_plain(item))
        except SpecError as error:
            if len(items) == 1:
                raise
            raise SpecError(f"job {position + 1} of {len(items)}: {error.message}", hint=error.hint) from error
    return specs


def spec_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what people may write as a job."""
    schema = msgspec.json.schema(_with_plain_defaults(JobSpec), schema_hook=schema_hook)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "HAL job specification"
    fields = schema["$defs"]["JobSpec"]["properties"]
    fields["array"] = {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}, {"$ref": "#/$defs/ArrayRange"}],
        "description": "a count or a range of indices",
        "examples": [100, "0-99", "0-98:2"],
    }
    fields["request"]["default"] = JobSpec().request.plain()
    fields["command"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "program and arguments, run without a shell",
        "default": [],
    }
    fields["constraints"]["items"] = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Constraint"}]}
    fields["dependencies"]["items"] = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Dependency"}]}
    return schema


def parse_constraint(text: str) -> Constraint:
    """`gpu=a100`, `gpu=a100|h100`, `rack!=r1`, `ssd` (has it), `!ssd` (has it not).

    Raises:
        SpecError: none of these.
    """
    text = text.strip()
    raw: dict[str, Any]
    if "!=" in text:
        label, _, values = text.partition("!=")
        raw = {"label": label, "op": "not-in", "values": values.split("|")}
    elif "=" in text:
        label, _, values = text.partition("=")
        raw = {"label": label, "op": "in", "values": values.split("|")}
    elif text.startswith("!"):
        raw = {"label": text[1:], "op": "absent"}
    else:
        raw = {"label": text, "op": "exists"}
    raw["label"] = raw["label"].strip()
    if not raw["label"]:
        raise SpecError(
            f"constraints: '{text}' names no label", hint="write label=value, label!=value, label or !label"
        )
    return msgspec.convert(raw, Constraint)


def parse_dependency(text: str) -> Dependency:
    """`42` (afterok), `afterany:42`, `afterok:prepare` (a job of the same submission by name).

    Raises:
        SpecError: an unknown kind.
    """
    kind, colon, job = text.strip().partition(":")
    if not colon:
        kind, job = "afterok", kind
    try:
        return msgspec.convert({"kind": kind, "job": job}, Dependency)
    except msgspec.ValidationError:
        kinds = "after, afterany, afterok, afternotok"
        raise SpecError(f"dependencies: '{text}' is not KIND:JOB", hint=f"the kinds are {kinds}") from None


def _with_plain_defaults(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same struct with its defaults as people write them: a schema's defaults must be plain data."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(kind):
        nested = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        default: Any = msgspec.NODEFAULT
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        elif nested or isinstance(field.default, Resources):
            default = msgspec.field(default_factory=dict)
        elif not field.required:
            default = to_plain(field.default)
        fields.append((field.name, _with_plain_defaults(field.type) if nested else field.type, default))
    doc = {"__doc__": kind.__doc__}
    return msgspec.defstruct(kind.__name__, fields, namespace=doc, forbid_unknown_fields=True, kw_only=True)


def _loosened(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """What people write brought to the declared shape; everything else is left for `convert` to judge."""
    out = {str(key): value for key, value in raw.items()}
    if out.get("array") is not None:
        out["array"] = ArrayRange.parse(out["array"])
    if isinstance(out.get("command"), str):
        raise SpecError(
            f"command: expected a list of words, got the text {out['command']!r}",
            hint="write ['echo', 'hello'], or use `script` for shell text",
        )
    if isinstance(out.get("constraints"), list):
        out["constraints"] = [parse_constraint(c) if isinstance(c, str) else c for c in out["constraints"]]
    if isinstance(out.get("dependencies"), list):
        out["dependencies"] = [parse_dependency(d) if isinstance(d, str) else d for d in out["dependencies"]]
    if isinstance(out.get("env"), Mapping):
        out["env"] = {str(k): _env_text(v) for k, v in out["env"].items()}
    return out


def _env_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _depth(value: Any, level: int = 1) -> int:
    if level > MAX_NESTING:
        return level
    if isinstance(value, Mapping):
        return max((_depth(v, level + 1) for v in value.values()), default=level)
    if isinstance(value, list | tuple):
        return max((_depth(v, level + 1) for v in value), default=level)
    return level


def _placed(text: str, message: str) -> str:
    match = _AT.match(text)
    place = match.group(2) if match else ""
    return f"{place}: {message.removeprefix('duration: ')}" if place and not message.startswith(place) else message


def _explain(text: str, kind: Any) -> tuple[str]:
    unknown = _UNKNOWN.search(text)
    if unknown:
        name, path = unknown.group(1), (unknown.group(2) or "$").removeprefix("$").removeprefix(".")
        valid = sorted(set(_fields_at(kind, path)))
        near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
        advice = f"; did you mean '{near[0]}'?" if near else f"; valid fields are {', '.join(valid)}" if valid else ""
        return (f"unknown field '{name}'{f' in {path}' if path else ''}{advice}",)
    match = _AT.match(text)
    if match and match.group(2):
        return (f"{match.group(2)}: {match.group(1)[:1].lower()}{match.group(1)[1:]}",)
    return (text,)


def _fields_at(kind: Any, path: str) -> Iterator[str]:
    """Names of the fields of the struct that `path` (as msgspec prints it: `a.b[...].c`) leads to."""
    steps = [step for step in re.split(r"\.|(?=\[)", path) if step]
    for step in steps:
        kind = _step_into(kind, step)
    for candidate in _structs(kind):
        yield from (field.encode_name for field in msgspec.structs.fields(candidate))


def _step_into(kind: Any, step: str) -> Any:
    if step.startswith("["):
        args = [a for k in _options(kind) for a in get_args(k) if a is not Ellipsis]
        return args[-1] if args else None
    for candidate in _structs(kind):
        hints = get_type_hints(candidate)
        if step in hints:
            return hints[step]
    return None


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    return [k for k in _options(kind) if isinstance(k, type) and issubclass(k, msgspec.Struct)]


_READERS: dict[str, Callable[[str], Any]] = {
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "json": msgspec.json.decode,
}
