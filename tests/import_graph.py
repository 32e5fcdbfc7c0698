"""The modules of a package and what each imports at some time, read from the source: nothing is run.

Imports within functions count, and commands that are loaded by name (`"hal.cli.jobs.run:run"`). Imports for types alone
do not, except in a package that loads what it offers when it is asked for: there they are the list of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

COMMAND: Final = re.compile(r"([a-z_.]+):[a-z_]+")
"""A function by its module and name, as text."""


def import_graph(root: Path, package: str, tree_of: Callable[[Path], ast.Module]) -> dict[str, set[str]]:
    """Of each module below `root / package`, the modules of it that it imports; `tree_of` reads a file."""
    files = {_name_of(path.relative_to(root)): path for path in (root / package).rglob("*.py")}
    return {name: set(_imports(name, tree_of(path), files)) - {name} for name, path in files.items()}


def _name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, tree: ast.Module, files: Mapping[str, Path]) -> Iterator[str]:
    lists = files[name].name == "__init__.py" and any(
        isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in ast.walk(tree)
    )
    waiting: list[ast.AST] = [tree]
    while waiting:
        match waiting.pop():
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=for_types, orelse=others):
                waiting += [*(for_types if lists else ()), *others]
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in files)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                modules = {f"{module}.{one.name}" for one in names}
                yield from modules & files.keys()
                if module in files and not modules <= files.keys():
                    yield module
            case ast.ImportFrom():
                raise AssertionError(f"{name}: a relative import, which this does not follow")
            case ast.Constant(value=str(text)):
                if (command := COMMAND.fullmatch(text)) is not None and command[1] in files:
                    yield command[1]
            case node:
                waiting += ast.iter_child_nodes(node)
