"""Read job specs from text: TOML, YAML and JSON give the same plain data for the same job.

Pure. Stricter than the readers it uses: a repeated key is refused (they would keep the last), YAML follows the 1.2 core
schema (`on`, `1:30` and `2024-01-01` are text, as in the other two), and what would expand to more than `MAX_VALUES`
values or is nested deeper than `MAX_NESTING` is refused before it is expanded.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

import yaml

from hal.core.model.codec import MAX_NESTING, MAX_SPEC_BYTES, spec_from_plain
from hal.core.model.errors import SpecError, shown
from hal.core.model.job import JobSpec
from hal.core.model.printable import printable

Path = tuple[str | int, ...]
"""Keys and positions that lead to a value."""
MAX_VALUES: Final = 2_000_000
"""Values in one text; those repeated by YAML aliases are counted each time."""
MAX_KEY_PARTS: Final = 64
"""Parts of a dotted key of TOML."""
_ENDS_KEY: Final = frozenset("=,[]{}\n")
"""Outside text, each of these ends the key before it."""


def specs_from_text(text: str, *, kind: str) -> list[JobSpec]:
    """Read the jobs in a file: one job, a list of jobs, or a table with a list named `jobs`.

    Args:
        text: the file's text.
        kind: 'toml', 'yaml' or 'json'.
    Raises:
        SpecError: not that format, no job in it, or a malformed job (its position in the list is named).
    """
    raw = plain_from_text(text, kind=kind)
    if isinstance(raw, dict) and "jobs" in raw:
        if len(raw) > 1:
            others = ", ".join(shown(key) for key in raw if key != "jobs")
            raise SpecError(
                f"there are fields beside `jobs`: {others}", hint="put every field into the jobs themselves"
            )
        raw = raw["jobs"]
    items = raw if isinstance(raw, list) else [raw]
    if not items or raw is None or raw == {}:
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


def yaml_from_plain(plain: Any) -> str:
    """Write YAML that `plain_from_text` reads back to the same data, keeping letters of every script."""
    # PyYAML loses the rarer line breaks and the byte order mark if it may write them unescaped, and writes some
    # characters unescaped that act on a terminal.
    plainly = json.dumps(plain, ensure_ascii=False)
    rare = printable(plainly) != plainly
    written: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=not rare, default_flow_style=False)
    return written


def plain_from_text(text: str, *, kind: str) -> Any:
    """Read plain data (dicts, lists, numbers, text) from TOML, YAML or JSON.

    Raises:
        SpecError: not that format, too large, or nested too deeply.
    """
    reader = _READERS.get(kind)
    if reader is None:
        raise SpecError(f"'{shown(kind)}' is not a format", hint="use toml, yaml or json")
    return _read(text, kind, reader)


def plain_and_lines_of_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """Read plain data from YAML, with the line, from 1, on which each value begins; of a key's, that of the key.

    Raises:
        SpecError: as `plain_from_text`.
    """
    lines: dict[Path, int] = {}
    plain = _read(text, "yaml", partial(_read_yaml, look=lambda node: _collect_lines(node, (), lines)))
    return plain, lines


def _read(text: str, kind: str, reader: Callable[[str], Any]) -> Any:
    """What a reader makes of the text.

    Raises:
        SpecError: see `plain_from_text`.
    """
    if len(text) > MAX_SPEC_BYTES:
        raise SpecError(f"the text is longer than {MAX_SPEC_BYTES} bytes", hint="split it into several files")
    try:
        return reader(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise SpecError(f"{kind.upper()} is nested too deeply", hint=f"at most {MAX_NESTING} levels") from error
    except (yaml.YAMLError, ValueError) as error:
        # ValueError is the base of the errors of tomllib and json, and what int() raises for far too many digits.
        raise SpecError(f"not {kind.upper()}: {' '.join(str(error).split())}") from error


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_json(text: str) -> Any:
    raw = json.loads(text, object_pairs_hook=_table, parse_constant=_refuse_constant)
    if "\\ud" in text.lower():
        # Half a surrogate pair is the only text that JSON can express and UTF-8 cannot.
        json.dumps(raw, ensure_ascii=False).encode()
    return raw


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"'{shown(_first_twice(pairs))}' is given twice")
    return table


def _first_twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise KeyError


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# ── TOML ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_toml(text: str) -> Any:
    _check_keys(text)
    return tomllib.loads(text)


_TOML_TOKEN: Final = re.compile(
    r"""(?xs)
    \"\"\"(?:[^"\\]|\\.|"(?!""))*+(?:\"\"\"|\Z)      # text over several lines, also one that the file ends in
    | '''(?:[^']|'(?!''))*+(?:'''|\Z)
    | "(?:[^"\\\n]|\\.)*+"?
    | '[^'\n]*+'?
    | \#[^\n]*+
    | (?P<dot>\.)
    | (?P<other>[^."'\#\ \t]++)
    """
)


def _check_keys(text: str) -> None:
    """Refuse dotted keys of very many parts, for which tomllib needs time quadratic in their number.

    Raises:
        SpecError: a key has more than `MAX_KEY_PARTS`.
    """
    if text.count(".") < MAX_KEY_PARTS:
        return
    dots = 0
    for token in _TOML_TOKEN.finditer(text):
        if token["dot"]:
            dots += 1
            if dots >= MAX_KEY_PARTS:
                raise SpecError(f"a key of more than {MAX_KEY_PARTS} parts", hint=f"at most {MAX_NESTING} levels")
        elif token["other"] and not _ENDS_KEY.isdisjoint(token["other"]):
            dots = 0


# ── YAML ──────────────────────────────────────────────────────────────────────────────────────────────────────────


# PyYAML's safe loader (the one in C where it was built) with the scalars of YAML 1.2's core schema.
_CoreLoader: Any = type(
    "_CoreLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {"yaml_implicit_resolvers": {}}
)
# The writer quotes everything that either YAML version reads as something other than text: to this reader, `0E0` is a
# number too.
_Dumper: Any = type("_Dumper", (yaml.SafeDumper,), {})

for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    ("merge", r"<<", ["<"]),
):
    for _way in (_CoreLoader, _Dumper):
        _way.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _collect_lines(node: yaml.Node, path: Path, lines: dict[Path, int]) -> None:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            at = (*path, str(key.value))
            _collect_lines(value, at, lines)
            lines[at] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            _collect_lines(value, (*path, position), lines)


def _read_yaml(text: str, look: Callable[[yaml.Node], None] | None = None) -> Any:
    _check_depth(text)
    loader = _CoreLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _unfolded(node, {}) > MAX_VALUES:
            raise ValueError(f"its aliases expand to more than {MAX_VALUES} values")
        if look is not None:
            look(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    """Refuse deep nesting before the composer, which recurses outside Python's own limit, sees it."""
    depth = 0
    for event in yaml.parse(text, Loader=_CoreLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            # The list of jobs, or the table with one, surrounds the job itself.
            if depth > MAX_NESTING + 2:
                raise ValueError(f"nested deeper than {MAX_NESTING} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _unfolded(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values that a node stands for once its aliases are followed; checks keys and cycles on the way."""
    size = known.get(id(node))
    if size == 0:
        raise ValueError(f"an alias refers to its own container (line {node.start_mark.line + 1})")
    if size is not None:
        return size
    known[id(node)] = 0
    size = 1
    if isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, key.value)
                if name in seen and key.value != "<<":
                    raise ValueError(f"'{shown(key.value)}' is given twice (line {key.start_mark.line + 1})")
                seen.add(name)
            size += _unfolded(key, known) + _unfolded(value, known)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_unfolded(item, known) for item in node.value)
    known[id(node)] = size
    return size


_READERS: Final[dict[str, Callable[[str], Any]]] = {"toml": _read_toml, "yaml": _read_yaml, "json": _read_json}
