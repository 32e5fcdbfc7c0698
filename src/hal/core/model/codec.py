"""Convert plain data and JSON to values and back, with helpful errors.

Pure. An unknown field is refused with the nearest valid name; a value of the wrong kind is refused with its path.
Encoding is canonical (fields in declared order, tables sorted by key, defaults omitted): equal checked specs give equal
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec

from hal.core.model.array import MAX_TASKS, ArrayRange, loosened
from hal.core.model.complaints import AT, explain_complaint
from hal.core.model.dependency import parse_dependencies
from hal.core.model.errors import SpecError, shown
from hal.core.model.gate import parse_gate
from hal.core.model.job import MAX_RETRIES, Constraint, JobSpec, check_spec
from hal.core.model.json_values import dec_hook, to_json
from hal.core.model.notification import parse_notification
from hal.core.model.resources import Resources
from hal.core.model.sandbox import parse_sandbox
from hal.core.model.service import loosened_service
from hal.core.model.umask import parse_umask
from hal.core.model.units import MAX_AMOUNT, Duration

T = TypeVar("T")

MAX_SPEC_BYTES: Final = 16 << 20
"""Largest text accepted as a file of jobs."""
MAX_NESTING: Final = 16
"""Deepest table inside a spec."""

MAX_DIGITS: Final = 19
"""Of an amount of licences: one more than any accepted amount has."""

_SCALARS = frozenset({str, int, float, bool, type(None)})


def schema_hook(kind: type) -> dict[str, Any]:
    """JSON Schema of the model's own types."""
    if kind is Duration:
        return {
            "anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}],
            "description": "a duration: 90m, 1d2h, 02:30:00, unlimited, or a number of seconds",
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


_SPEC: Final = msgspec.json.Decoder(JobSpec, dec_hook=dec_hook)
"""Created at import, so that what msgspec collects about these types exists before threads need it: two threads that
collect it at the same moment can crash the process (msgspec 0.22)."""


def from_json(data: bytes | str, kind: type[T]) -> T:
    """Decode a JSON text to a value of that type.

    Raises:
        SpecError: not JSON, or not a `kind`; names the field.
    """
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SpecError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise SpecError("JSON is nested too deeply") from error
    return convert(raw, kind)


def convert(raw: Any, kind: type[T]) -> T:
    """Convert plain data (dicts, lists, numbers, text) to a value of that type.

    Raises:
        SpecError: names the field, what was found there, and the nearest valid name for an unknown one.
    """
    try:
        return msgspec.convert(raw, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        cause = error.__cause__.__cause__ if error.__cause__ else None
        if isinstance(cause, SpecError):
            raise SpecError(_placed(str(error), cause.message), hint=cause.hint) from error
        raise SpecError(explain_complaint(str(error), kind)) from error


def to_plain(value: Any) -> Any:
    """Convert a value of the model to plain data (dicts, lists, numbers, text), from which YAML and tables are made."""
    return msgspec.json.decode(to_json(value))


def spec_from_plain(raw: Any) -> JobSpec:
    """Build a checked spec from plain data as people write it (`array: 0-99`, `constraints: ['gpu=a100']` …).

    Raises:
        SpecError: malformed; nothing is partly accepted.
    """
    if not isinstance(raw, Mapping):
        raise SpecError(f"a job is a table of fields, not {shown(raw)}")
    if _depth(raw) > MAX_NESTING:
        raise SpecError(f"nested deeper than {MAX_NESTING} levels")
    return check_spec(convert(_loosened(raw), JobSpec))


def loosened_spec(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """Some fields of a job as people write them, in their declared form where they are well formed.

    Raises:
        SpecError: nested too deeply, or text that is not what its field takes.
    """
    if _depth(raw) > MAX_NESTING:
        raise SpecError(f"nested deeper than {MAX_NESTING} levels")
    return _loosened(raw)


def spec_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a job as people may write it."""
    schema = msgspec.json.schema(_with_plain_defaults(JobSpec), schema_hook=schema_hook)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "HAL job specification"
    fields = schema["$defs"]["JobSpec"]["properties"]
    fields["array"] = _or(
        {"type": "integer", "minimum": 1, "maximum": MAX_TASKS},
        {"type": "string"},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        {"$ref": "#/$defs/ArrayRange"},
        {"type": "null"},
        description="a count or indices, with %N at most N at once; a table may have one item for each task",
        examples=[100, "0-99", "1,3,5-9:2", "0-99%8", {"items": ["a.txt", "b.txt"]}],
    )
    array = schema["$defs"]["ArrayRange"]
    array["properties"]["items"]["items"] = {}
    array["properties"]["indices"] = _or(array["properties"]["indices"], {"type": "string"}, examples=["1,3,5-9:2"])
    del array["required"]
    array["anyOf"] = [{"required": [one]} for one in ("count", "indices", "items")]
    request = {key: value for key, value in fields["request"].items() if key != "default"}
    fields["request"] = _or(request, {"type": "string"}, default=JobSpec().request.plain())
    fields["command"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "program and arguments, run without a shell",
        "default": [],
    }
    fields["licences"] = _or(
        fields["licences"],
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        examples=[{"matlab": 2}, "matlab:2,ansys"],
    )
    fields["env"]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    count = {"type": "integer", "minimum": 0, "maximum": MAX_RETRIES}
    fields["retries"] = _or(count, {"$ref": "#/$defs/Retries"}, default={})
    fields["constraints"]["items"] = _or({"type": "string"}, {"$ref": "#/$defs/Constraint"})
    group = schema["$defs"]["Group"]["properties"]
    group["request"] = _or(request, {"type": "string"}, default=JobSpec().request.plain())
    group["constraints"]["items"] = _or({"type": "string"}, {"$ref": "#/$defs/Constraint"})
    fields["gates"]["items"] = _or({"type": "string"}, {"$ref": "#/$defs/JobGate"})
    fields["notify"]["items"] = _or({"type": "string"}, {"$ref": "#/$defs/Notification"})
    fields["sandbox"] = _or(
        {"type": "boolean"}, {"type": "string"}, fields["sandbox"], default=[], examples=[True, "yes,no-network"]
    )
    each = _or({"type": "string"}, {"type": "integer", "minimum": 1}, {"$ref": "#/$defs/Dependency"})
    fields["dependencies"]["items"] = each
    fields["dependencies"] = _or(
        {key: value for key, value in fields["dependencies"].items() if key in ("type", "items")},
        {"type": "string"},
        description="all of them must be met; as text: afterok:12 & (afterany:13 | afternotok:14)",
        default=[],
        examples=[["prepare", "afterany:42"], "afterok:12 & (afterany:13 | afternotok:14)"],
    )
    fields["service"]["anyOf"].insert(0, {"const": True})
    service = schema["$defs"]["Service"]["properties"]
    service["ports"] = _or({"type": "string"}, {"type": "array", "items": {"type": "string"}}, service["ports"])
    service["readiness"]["anyOf"].insert(0, {"type": "string"})
    dependency = schema["$defs"]["Dependency"]["properties"]
    dependency["job"]["type"] = ["string", "integer"]
    dependency["any_of"]["items"] = each
    fields["begin_at_ms"] = _or(
        {"type": "integer", "minimum": 0, "maximum": MAX_AMOUNT},
        {"type": "string", "format": "date-time"},
        description="not before this instant: ms since 1970, or ISO text with a zone",
        default=0,
    )
    for name, definition in schema["$defs"].items():
        definition["description"] = " ".join(definition.get("description", name).split())
    return schema


def _or(*kinds: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"anyOf": list(kinds), **more}


def parse_constraint(text: str) -> Constraint:
    """Parse `gpu=a100`, `gpu=a100|h100`, `rack!=r1`, `ssd` (has the label), `!ssd` (lacks it).

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
            f"constraints: '{shown(text)}' names no label", hint="write label=value, label!=value, label or !label"
        )
    return msgspec.convert(raw, Constraint)


def parse_licences(value: str | Iterable[Any]) -> dict[str, int]:
    """Parse `matlab:2,ansys` or `['matlab:2', 'ansys']`: amounts by name, 1 if none is given.

    Raises:
        SpecError: not NAME or NAME:N, or a name given twice.
    """
    out: dict[str, int] = {}
    for part in value.split(",") if isinstance(value, str) else value:
        name, colon, count = str(part).strip().partition(":")
        if not name or (colon and not (count.isascii() and count.isdigit() and len(count) < MAX_DIGITS)):
            raise SpecError(f"licences: '{shown(part)}' is not NAME:N", hint="write it like matlab:2, or just matlab")
        if name in out:
            raise SpecError(f"licences: '{shown(name)}' is given twice")
        out[name] = int(count) if colon else 1
    return out


def _with_plain_defaults(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Copy a struct with its defaults as people write them: a schema's defaults must be plain data."""
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
        fields.append(
            (field.name, _with_plain_defaults(field.type) if nested else _with_plain_items(field.type), default)
        )
    doc = {"__doc__": kind.__doc__}
    return msgspec.defstruct(kind.__name__, fields, namespace=doc, forbid_unknown_fields=True, kw_only=True)


def _with_plain_items(kind: Any) -> Any:
    """The type of a list of structs whose defaults are durations, or of one that may be left out, with these as plain
    data; other types as they are."""
    if get_origin(kind) is Annotated:
        inner, *about = get_args(kind)
        return Annotated[_with_plain_items(inner), *about]
    if get_origin(kind) is UnionType:
        first, *others = (_in_plain(one) for one in get_args(kind))
        return reduce(or_, others, first)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        plain = _in_plain(item)
        return kind if plain is item else GenericAlias(tuple, (plain, ...))
    return kind


def _in_plain(kind: Any) -> Any:
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return kind
    texts = any(isinstance(field.default, Duration | Resources) for field in msgspec.structs.fields(kind))
    return _with_plain_defaults(kind) if texts else kind


def _loosened(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert what people write to the declared form; everything else is left for `convert` to check."""
    out = {str(key): value for key, value in raw.items()}
    if isinstance(out.get("array"), int | str | list | tuple):
        out["array"] = ArrayRange.parse(out["array"])
    elif isinstance(out.get("array"), Mapping):
        out["array"] = loosened(out["array"])
    if isinstance(out.get("command"), str):
        raise SpecError(
            f"command: expected a list of words, got the text '{shown(out['command'])}'",
            hint="write ['echo', 'hello'], or use `script` for shell text",
        )
    if isinstance(out.get("constraints"), list | tuple):
        out["constraints"] = [parse_constraint(c) if isinstance(c, str) else c for c in out["constraints"]]
    if isinstance(out.get("groups"), list | tuple):
        out["groups"] = [_group(one) if isinstance(one, Mapping) else one for one in out["groups"]]
    if isinstance(out.get("gates"), list | tuple):
        out["gates"] = [parse_gate(one) if isinstance(one, str) else one for one in out["gates"]]
    if isinstance(out.get("notify"), str):
        out["notify"] = [out["notify"]]
    if isinstance(out.get("notify"), list | tuple):
        out["notify"] = [parse_notification(one) if isinstance(one, str) else one for one in out["notify"]]
    if "sandbox" in out:
        out["sandbox"] = parse_sandbox(out["sandbox"])
    if "umask" in out:
        out["umask"] = parse_umask(out["umask"])
    if "service" in out:
        out["service"] = loosened_service(out["service"])
    if isinstance(out.get("dependencies"), str | list | tuple):
        out["dependencies"] = _dependencies(out["dependencies"])
    if isinstance(out.get("begin_at_ms"), str | datetime):
        out["begin_at_ms"] = _instant_ms(out["begin_at_ms"])
    if isinstance(out.get("licences"), str | list | tuple):
        out["licences"] = parse_licences(out["licences"])
    if isinstance(out.get("retries"), int) and not isinstance(out["retries"], bool):
        out["retries"] = {"max": out["retries"]}
    if isinstance(out.get("env"), Mapping):
        out["env"] = {str(k): _env_text(str(k), v) for k, v in out["env"].items()}
    if isinstance(out.get("labels"), Mapping):
        out["labels"] = {str(k): _label_text(str(k), v) for k, v in out["labels"].items()}
    return out


def _group(table: Mapping[Any, Any]) -> dict[Any, Any]:
    """A group of nodes; conditions and names of resources as people write them."""
    rules = table.get("constraints")
    if not isinstance(rules, list | tuple):
        return dict(table)
    return {**table, "constraints": [parse_constraint(c) if isinstance(c, str) else c for c in rules]}


def _dependencies(written: Any) -> list[Any]:
    out: list[Any] = []
    for one in [written] if isinstance(written, str) else written:
        if isinstance(one, str) or (isinstance(one, int) and not isinstance(one, bool)):
            out.extend(parse_dependencies(one if isinstance(one, str) else shown(one)))
        elif isinstance(one, Mapping):
            out.append(_dependency(one))
        else:
            out.append(one)
    return out


def _dependency(table: Mapping[Any, Any]) -> dict[Any, Any]:
    changes: dict[str, Any] = {}
    if isinstance(table.get("job"), int) and not isinstance(table["job"], bool):
        changes["job"] = shown(table["job"])
    if isinstance(table.get("any_of"), list | tuple):
        changes["any_of"] = _dependencies(table["any_of"])
    return {**table, **changes}


def _instant_ms(value: str | datetime) -> int:
    """Parse ISO text or TOML's own type. The zone is required: the controller may be in another one."""
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise SpecError(
            f"begin_at_ms: '{shown(str(value))}' is not an instant with a zone",
            hint="write milliseconds since 1970, or an instant like 2030-01-31T18:00:00Z",
        )
    return (instant - _EPOCH) // timedelta(milliseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _env_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return value if isinstance(value, str) else shown(value)
    raise SpecError(f"env.{shown(key)}: expected text, got {shown(value)}", hint="write '' for an empty variable")


def _label_text(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    text = shown(value)
    raise SpecError(f"labels.{shown(key)}: expected text, got {text}", hint=f"put it in quotes: '{text}'")


def _depth(value: Any, level: int = 1) -> int:
    if level > MAX_NESTING:
        return level
    inner: Iterable[Any]
    if isinstance(value, (dict, Mapping)):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    else:
        return level - 1
    return max((_depth(one, level + 1) for one in inner if type(one) not in _SCALARS), default=level)


def _placed(text: str, message: str) -> str:
    match = AT.match(text)
    place = match.group(2) if match else ""
    return f"{place}: {message.removeprefix('duration: ')}" if place and not message.startswith(place) else message
