"""Read a policy and its entries from plain data as people write them in TOML and JSON; their JSON Schema.

Pure. Accepted besides the declared form: `accounts` as a list of names; conditions on nodes as text (`gpu=a100`);
`start` and `until` of a booking as an instant (`2026-12-24T18:00`, UTC unless it names a zone) instead of `start_ms`
and `until_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import GenericAlias
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from hal.core.model.codec import convert, parse_constraint, schema_hook, to_plain
from hal.core.model.config_sections import toml_text
from hal.core.model.errors import SpecError, shown
from hal.core.model.policy import Account, Booking, FairShare, GateRule, Limit, Policy, Qos, Queue, Weights
from hal.core.model.policy_check import check_policy
from hal.core.model.resources import Resources
from hal.core.model.sandbox import parse_sandbox

T = TypeVar("T", bound=Struct)

TABLES: Final[dict[str, type[Struct]]] = {
    "queues": Queue,
    "accounts": Account,
    "qos": Qos,
    "limits": Limit,
    "bookings": Booking,
    "gates": GateRule,
}
"""Tables of named entries."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
"""Keys that TOML takes without quotes."""
_INSTANTS: Final = {"start": "start_ms", "until": "until_ms"}
_CONDITIONS: Final = {Queue: "nodes", Booking: "constraints"}


def policy_from_plain(raw: Any) -> Policy:
    """Build a checked policy from plain data.

    Raises:
        SpecError: malformed, or its parts do not fit together; names entry and field.
    """
    if not isinstance(raw, Mapping):
        raise SpecError(f"a policy is a table of fields, not {shown(raw)}")
    out = {str(key): value for key, value in raw.items()}
    if isinstance(out.get("accounts"), list | tuple):
        out["accounts"] = _declared(out["accounts"])
    for table, kind in TABLES.items():
        entries = out.get(table)
        if isinstance(entries, Mapping):
            out[table] = {
                str(name): entry_from_plain(entry, kind, f"{table}.{name}") for name, entry in entries.items()
            }
    return check_policy(convert(out, Policy))


def entry_from_plain(raw: Any, kind: type[T], at: str) -> T:
    """Build one entry; `at` is its name in errors. `check_policy` checks whether it fits into a policy.

    Raises:
        SpecError: malformed.
    """
    if not isinstance(raw, Mapping):
        raise SpecError(f"{at}: expected a table of fields, got {shown(raw)}")
    try:
        return convert(_loosened(raw, kind, at), kind)
    except SpecError as error:
        dot = "." if error.message.partition(":")[0].partition(".")[0] in kind.__struct_fields__ else ": "
        raise SpecError(f"{at}{dot}{error.message}", hint=error.hint) from error


def policy_to_plain(policy: Policy) -> dict[str, Any]:
    """Convert a policy to plain data that `policy_from_plain` reads back; its version is omitted."""
    plain: dict[str, Any] = to_plain(policy)
    plain.pop("version", None)
    for table in TABLES:
        for entry in plain.get(table, {}).values():
            entry.pop("name", None)
    return plain


def policy_to_toml(policy: Policy) -> str:
    """Convert a policy to the text of its part of a hal.toml, from which `policy_from_plain` gives the policy back."""
    plain = policy_to_plain(policy)
    tables = {name: plain.pop(name) for name in TABLES if name in plain}
    lines = [f"{_key(name)} = {toml_text(value)}" for name, value in plain.items() if not isinstance(value, dict)]
    for name, value in plain.items():
        if isinstance(value, dict):
            lines += _table((name,), value)
    for table, entries in tables.items():
        for name, entry in entries.items():
            lines += _table((table, name), entry)
    return "\n".join(lines).strip("\n") + "\n"


def _table(path: tuple[str, ...], fields: Mapping[str, Any]) -> list[str]:
    header = ".".join(_key(part) for part in path)
    return ["", f"[{header}]", *(f"{_key(name)} = {toml_text(value)}" for name, value in fields.items())]


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_text(name)


def parse_instant_ms(value: object, field: str) -> int:
    """Parse a datetime or its ISO text to milliseconds since 1970; UTC unless it names a zone.

    Raises:
        SpecError: neither.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime):
        raise SpecError(f"{field}: is not an instant", hint="write it like 2026-12-24T18:00, or with a zone +01:00")
    at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def policy_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a policy as people may write it."""
    schema = msgspec.json.schema(_with_plain_defaults(Policy), schema_hook=schema_hook)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "HAL policy"
    definitions = schema["$defs"]
    instant = {"type": "string", "format": "date-time", "description": "instead of the field that ends in _ms"}
    definitions["Booking"]["properties"] |= {"start": instant, "until": instant}
    for name, field in (("Queue", "nodes"), ("Booking", "constraints")):
        items = definitions[name]["properties"][field]["items"]
        definitions[name]["properties"][field]["items"] = {"anyOf": [{"type": "string"}, items]}
    sandbox = definitions["Queue"]["properties"]["sandbox"]
    definitions["Queue"]["properties"]["sandbox"] = {"anyOf": [{"type": "boolean"}, {"type": "string"}, sandbox]}
    for field in ("resources", "hours", "max_job", "borrow"):
        definitions["Limit"]["properties"][field]["anyOf"].append({"type": "string"})
    for field in ("default_request", "gpu_reserve"):
        definitions["Queue"]["properties"][field]["anyOf"].append({"type": "string"})
    accounts = definitions["Policy"]["properties"]["accounts"]
    definitions["Policy"]["properties"]["accounts"] = {
        "anyOf": [accounts, {"type": "array", "items": {"type": "string"}}],
        "description": "by name; or a list of names",
    }
    for name, definition in definitions.items():
        definition["description"] = " ".join(definition.get("description", name).split())
    return schema


def _declared(names: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
    for name in names:
        if not isinstance(name, str):
            raise SpecError(f"accounts: expected names, got {shown(name)}")
        if names.count(name) > 1:
            raise SpecError(f"accounts: '{shown(name)}' is named twice")
    return {name: {} for name in names}


def _loosened(raw: Any, kind: type[Struct], at: str) -> Any:
    """Convert what people write to the declared form; everything else is left for `convert` to check."""
    if not isinstance(raw, Mapping):
        return raw
    out = {str(key): value for key, value in raw.items()}
    if kind is Queue and "sandbox" in out:
        out["sandbox"] = parse_sandbox(out["sandbox"])
    conditions = _CONDITIONS.get(kind)
    if conditions is not None and isinstance(out.get(conditions), list | tuple):
        out[conditions] = [parse_constraint(one) if isinstance(one, str) else one for one in out[conditions]]
    if kind is Booking:
        for short, field in _INSTANTS.items():
            if short in out:
                if field in out:
                    raise SpecError(f"{at}.{short}: is also given as {field}", hint="give it once")
                out[field] = parse_instant_ms(out.pop(short), f"{at}.{short}")
    return out


def _with_plain_defaults(kind: type[Struct]) -> type[Struct]:
    """Copy a struct with its defaults as people write them: a schema's defaults must be plain data."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(kind):
        default: Any = msgspec.NODEFAULT
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
            if kind is Policy and field.name in TABLES:
                default = msgspec.field(default_factory=dict)
        elif isinstance(field.default, Resources | Struct):
            default = msgspec.field(default_factory=dict)
        elif not field.required:
            default = to_plain(field.default)
        fields.append((field.name, _plain_type(field.type), default))
    doc = {"__doc__": kind.__doc__}
    return msgspec.defstruct(kind.__name__, fields, namespace=doc, forbid_unknown_fields=True, kw_only=True)


_PLAIN_TYPES: dict[type[Struct], type[Struct]] = {}


def _plain_type(kind: Any) -> Any:
    """Replace the structs of a policy inside the type by those with plain defaults."""
    if kind in (Queue, Qos, Account, Limit, Booking, GateRule, Weights, FairShare):
        if kind not in _PLAIN_TYPES:
            _PLAIN_TYPES[kind] = _with_plain_defaults(kind)
        return _PLAIN_TYPES[kind]
    if getattr(kind, "__origin__", None) is dict:
        key, value = kind.__args__
        return GenericAlias(dict, (key, _plain_type(value)))
    return kind
