"""Sections of hal.toml: each is declared once, by the daemon that reads it: keys, types, defaults, help, checks.

Pure: the caller reads the file. There is one parser of the file, and it is here. A daemon reads its own sections; it
leaves tables that belong to others alone, and a table that nobody knows is an error that names the nearest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from hal.core.model.codec import convert, to_plain
from hal.core.model.errors import SpecError, shown
from hal.core.model.resources import Resources
from hal.core.model.units import Duration, format_duration

T = TypeVar("T", bound=Struct)

MAX_CONFIG_BYTES: Final = 1 << 20
SEE: Final = "see docs/config.md"
HIDDEN: Final = "***"
"""Stands for what must not be shown."""

_TYPES: Final[dict[Any, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Duration: "duration",
    Resources: "table of amounts",
}


def _unchecked(_: Any) -> None:
    return None


def _shown_whole(value: Any) -> Any:
    return value


class Section(Struct, Generic[T], frozen=True, kw_only=True):
    """One table of hal.toml."""

    name: str
    kind: type[T]
    """Its keys: fields with defaults, each `Annotated` with a `Meta` whose description is its help; unknown ones are
    forbidden."""
    reader: str
    """The process that reads it: `controller`."""
    about: str
    """What it is about, in a sentence."""
    check: Callable[[T], object] = _unchecked
    """Raises a SpecError that names section and key where values make no sense."""
    former: Mapping[str, str] = {}
    """Keys of earlier versions, and what to do about each."""
    secrets: Mapping[str, Callable[[Any], Any]] = {}
    """Keys whose values may hold a secret, and how they are shown without it."""


class Setting(Struct, frozen=True, kw_only=True):
    """One key of a section, as it is declared."""

    section: str
    key: str
    """With dots where the key is in a table within the section; `NAME` stands for a name that the site chooses, `[]`
    for one table of several."""
    type: str
    """In words."""
    default: Any
    """Plain data; None: it must be written."""
    help: str


class Sections:
    """Values of several sections, by their declarations."""

    def __init__(self, values: Mapping[str, Struct], tables: Mapping[str, Any]) -> None:
        self._values = values
        self.tables = tables
        """Further tables of the file that were asked for, as plain data; those that the file lacks are not there."""

    def __getitem__(self, section: Section[T]) -> T:
        value = self._values[section.name]
        assert isinstance(value, section.kind)
        return value


def check_range(field: str, value: int, least: int, most: int, *, least_means: str = "") -> None:
    """Check a number or a duration of the file.

    Args:
        field: section and key.
        least_means: in words, where the least value stands for something else than a number.
    Raises:
        SpecError: it is out of range; names the field, the value and the range.
    """
    if least <= value <= most:
        return
    text = format_duration if isinstance(value, Duration) else shown
    meaning = f" ({least_means})" if least_means else ""
    raise SpecError(f"{field}: {text(value)} is out of range", hint=f"between {text(least)}{meaning} and {text(most)}")


def parse_toml(text: str, file: str = "hal.toml") -> dict[str, Any]:
    """The tables of a file.

    Raises:
        SpecError: too long, or not TOML.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise SpecError(f"{file}: longer than {MAX_CONFIG_BYTES} bytes")
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"{file}: not TOML: {error}") from error
    return raw


def no_others(name: str) -> bool:
    """There are no sections but those that are given."""
    return False


def read_sections(
    raw: Mapping[str, Any],
    sections: Sequence[Section[Any]],
    *,
    tables: Sequence[str] = (),
    others: Callable[[str], bool] = no_others,
) -> Sections:
    """The values of these sections, checked; a section that the file lacks has its defaults.

    Args:
        raw: what `parse_toml` gives.
        tables: further tables that are allowed, whose form is not checked here.
        others: whether another daemon reads a table of that name; it is left alone.
    Raises:
        SpecError: an unknown table or key, or a value out of range; names section and key.
    """
    names = [*(section.name for section in sections), *tables]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"two daemons declare the section '{name}'", hint="uninstall one of their packages")
    for section in sections:
        table = raw.get(section.name)
        for key in section.former.keys() & (table if isinstance(table, dict) else {}):
            raise SpecError(f"{section.name}.{key}: {section.former[key]}")
    known = frozenset(names)
    mine = {name: value for name, value in raw.items() if name in known or not others(name)}
    form = msgspec.defstruct(
        "ConfigFile",
        [
            *((section.name, section.kind, msgspec.field(default_factory=section.kind)) for section in sections),
            *((name, Any, None) for name in tables),
        ],
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    file = convert(mine, form)
    values: dict[str, Struct] = {section.name: getattr(file, section.name) for section in sections}
    for section in sections:
        section.check(values[section.name])
    return Sections(values, {name: mine[name] for name in tables if name in mine})


def read_own(text: str, section: Section[T], file: str = "hal.toml") -> T:
    """The one section of a file that a daemon reads; all other tables are left to those who read them.

    Raises:
        SpecError: not TOML, or a mistake in the section; names the file, the section and the key.
    """
    raw = parse_toml(text, file)
    try:
        return read_sections(raw, (section,), others=lambda _: True)[section]
    except SpecError as error:
        raise SpecError(f"{file}: {error.message}", hint=error.hint or SEE) from error


def settings_of(section: Section[Any]) -> list[Setting]:
    """All keys of a section, as they are declared, with those of tables within it."""
    return list(_settings(section.name, section.kind, ""))


def _settings(section: str, kind: type[Struct], prefix: str) -> Iterator[Setting]:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        key = f"{prefix}{field.encode_name}"
        bare, text = _bare(hints[field.name])
        entries = get_args(bare)[1] if get_origin(bare) is dict else None
        if isinstance(bare, type) and issubclass(bare, Struct):
            yield from _settings(section, bare, f"{key}.")
        elif isinstance(entries, type) and issubclass(entries, Struct):
            yield from _settings(section, entries, f"{key}.NAME.")
        elif isinstance(listed := _listed(bare), type) and issubclass(listed, Struct):
            yield from _settings(section, listed, f"{key}[].")
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else None
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            yield Setting(section=section, key=key, type=type_text(bare), default=to_plain(default), help=text)


def _listed(bare: Any) -> Any:
    """Of what a list of any length consists; None: it is no such list."""
    arguments = get_args(bare) if get_origin(bare) is tuple else ()
    return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None


def _bare(hint: Any) -> tuple[Any, str]:
    """The type itself, and the help that goes with it."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    bare, *more = get_args(hint)
    return bare, next((one.description for one in more if isinstance(one, Meta) and one.description), "")


def type_text(kind: Any) -> str:
    """A type in words: `list of texts`."""
    if kind in _TYPES:
        return _TYPES[kind]
    if isinstance(kind, type) and not isinstance(kind, GenericAlias) and issubclass(kind, Enum):
        return " or ".join(filter(None, (", ".join(one.value for one in list(kind)[:-1]), list(kind)[-1].value)))
    arguments = [type_text(one) for one in get_args(kind) if one is not Ellipsis and one is not type(None)]
    if get_origin(kind) in (tuple, list):
        return f"list of {arguments[0]}s"
    if get_origin(kind) is dict:
        return f"table of {arguments[1]}s"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(arguments)
    return "any value"


def reference(sections: Sequence[Section[Any]]) -> str:
    """The reference page of all settings, in Markdown; equal for equal code."""
    parts = [
        "# hal.toml: all settings\n\nGenerated by `make spec` from the declarations of the sections; do not edit. "
        "[docs/config.md](../docs/config.md)\nshows a whole file and explains it. Besides these sections, the file may "
        "declare the policy ([docs/policy.md](../docs/policy.md)).\n`hal config check` finds mistakes, `hal config "
        "show` prints the values that hold.\n"
    ]
    for section in sections:
        parts.append(f"\n## [{section.name}]\n\n{section.about} Read by the {section.reader}.\n\n")
        parts.append("| key | type | default | |\n|---|---|---|---|\n")
        parts += [f"| `{one.key}` | {one.type} | {_default_text(one)} | {one.help} |\n" for one in settings_of(section)]
    return "".join(parts)


def _default_text(setting: Setting) -> str:
    return "required" if setting.default is None else f"`{toml_text(setting.default)}`"


def toml_text(value: Any) -> str:
    """A value of plain data as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # A basic string of TOML has the escapes of JSON; DEL is the one more that it does not allow.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_text(str(key))} = {toml_text(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return f"[{', '.join(toml_text(one) for one in value)}]"


class Effective(Struct, frozen=True, kw_only=True):
    """One setting as it holds."""

    section: str
    key: str
    """With dots where it is in a table within the section."""
    value: Any
    """Plain data, without secrets."""
    source: str
    """`default`, or where it is set."""


def effective_settings(
    raw: Mapping[str, Any], sections: Sequence[Section[Any]], values: Sections, file: str
) -> list[Effective]:
    """Every key of these sections with the value that holds, and where it comes from.

    Args:
        raw: the file, to see what it sets.
        values: the same, read by `read_sections`.
        file: its name.
    """
    found = []
    for section in sections:
        for path, value in _flat(values[section], ()):
            key = ".".join(path)
            shown = section.secrets[key](value) if key in section.secrets else value
            source = file if _is_set(raw, (section.name, *path)) else "default"
            found.append(Effective(section=section.name, key=key, value=to_plain(shown), source=source))
    return found


def _flat(value: Struct, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in msgspec.structs.fields(value):
        at, inner = (*path, field.encode_name), getattr(value, field.name)
        if isinstance(inner, Struct):
            yield from _flat(inner, at)
        elif isinstance(inner, Mapping) and inner and all(isinstance(one, Struct) for one in inner.values()):
            for name, entry in inner.items():
                yield from _flat(entry, (*at, name))
        else:
            yield at, inner


def _is_set(raw: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(raw, Mapping) or name not in raw:
            return False
        raw = raw[name]
    return True


def without_password(url: str) -> str:
    """A database's URL without what may be a password in it."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return HIDDEN if url else ""
    place, asks, _ = rest.partition("?")
    who, at, host = place.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{colon and ':' + HIDDEN}{at}{host}{asks and '?' + HIDDEN}"
