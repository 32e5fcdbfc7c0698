"""Nobody makes a detour to clocks, processes or chance around the import contracts, which `make lint` checks; and no
imports go round in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from tests.import_graph import import_graph

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "hal"

DETOURS: Final = frozenset(
    {
        "asyncio.sleep",
        "asyncio.to_thread",
        "asyncio.run",
        "asyncio.new_event_loop",
        "asyncio.open_connection",
        "asyncio.open_unix_connection",
        "asyncio.start_server",
        "asyncio.start_unix_server",
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.posix_spawn",
        "os.posix_spawnp",
        "os.system",
        "os.popen",
        "os.urandom",
        "os.times",
        "uuid.uuid1",
        "uuid.uuid4",
        "secrets.token_bytes",
        "secrets.token_hex",
        "secrets.token_urlsafe",
    }
)
"""Clocks, timers, sockets, processes and chance that need none of the modules which the import contracts forbid."""

DISK: Final = frozenset({"open", "os.open", "os.unlink", "os.rename", "os.replace", "pathlib.Path"})
"""What reaches the disk otherwise than through a Directory."""

PURE: Final = frozenset({"open", "print", "input"})
"""Builtins that reach the outside."""

BELOW_THE_SURFACES: Final = ("core", "store", "blobs", "wire", "planes", "rest", "daemons")
THE_KEEPER: Final = SOURCE / "daemons" / "agent" / "keeper"

EXCEPTIONS: Final[dict[str, frozenset[str]]] = {
    # Followers and other daemons ask a controller over REST: the other end of uvicorn's sockets.
    "rest/dialling.py": frozenset({"asyncio.open_connection", "asyncio.open_unix_connection"}),
}
"""File (from src/hal) to the detours it may take; the reason stands beside each."""


def python_files(*places: str) -> Iterator[Path]:
    for place in places:
        yield from sorted((SOURCE / place).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """A file of the source, read once for all tests here."""
    return ast.parse(path.read_text())


@cache
def called_names(path: Path) -> list[tuple[int, str]]:
    """Line and full dotted name of everything that is called, with imports resolved (`from time import sleep`)."""
    return [*_called_names(tree_of(path))]


def _called_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                known[name.asname or top] = name.name if name.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known |= {(name.asname or name.name): f"{node.module}.{name.name}" for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts: list[str] = []
            target: ast.expr = node.func
            while isinstance(target, ast.Attribute):
                parts.append(target.attr)
                target = target.value
            if isinstance(target, ast.Name):
                first = known.get(target.id, target.id)
                yield node.lineno, ".".join([first, *reversed(parts)])


def found_in(paths: Iterator[Path], forbidden: frozenset[str]) -> list[str]:
    found: list[str] = []
    for path in paths:
        name = str(path.relative_to(SOURCE))
        allowed = EXCEPTIONS.get(name, frozenset())
        for line, called in called_names(path):
            if called in forbidden - allowed:
                found.append(f"{name}:{line}: {called}")
    return found


def test_nothing_below_the_surfaces_reaches_time_or_processes_by_a_detour() -> None:
    """Outside runtime and the keeper nobody sleeps, spawns, listens or rolls dice through asyncio, os or datetime."""
    files = (path for path in python_files(*BELOW_THE_SURFACES) if not path.is_relative_to(THE_KEEPER))
    assert found_in(files, DETOURS) == []


def test_the_core_opens_no_file_and_prints_nothing() -> None:
    """hal.core calls none of the builtins that reach the outside."""
    assert found_in(python_files("core"), DETOURS | PURE) == []


def test_blobs_reach_the_disk_through_a_directory_only() -> None:
    """hal.blobs opens no file by itself, so that tests can crash and fill the disk under it."""
    assert found_in(python_files("blobs"), DISK) == []


def test_every_exception_is_still_needed() -> None:
    """An exception above that no file uses any more is removed."""
    for name, allowed in EXCEPTIONS.items():
        calls = {called for _, called in called_names(SOURCE / name)}
        assert allowed <= calls, name


def test_daemons_ask_the_tasks_plane_by_its_methods() -> None:
    """Nothing below src/hal/daemons reads a private attribute of a plane."""
    reached = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.attr}"
        for path in python_files("daemons")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if (isinstance(node.value, ast.Name) and node.value.id == "plane")
        or (isinstance(node.value, ast.Attribute) and node.value.attr in ("plane", "_plane"))
    ]
    assert reached == []


def test_every_package_of_the_house_is_on_a_floor() -> None:
    """A new directory under src/hal is named in the layers contract, or it is not checked at all."""
    text = (ROOT / "pyproject.toml").read_text()
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {name for name in packages if f"hal.{name}" not in text} == set()


def test_no_imports_go_round_in_a_circle() -> None:
    """Modules can be put in an order in which each imports only those before it, within functions, too.

    Where two need each other, what both need is a module of its own, or one is given what it needs as an argument.
    """
    graph = import_graph(ROOT / "src", "hal", tree_of)
    assert len(graph) > 1_000
    TopologicalSorter(graph).prepare()  # a CycleError names the circle


def write_modules(root: Path, **texts: str) -> dict[str, set[str]]:
    """The graph of a package of these modules."""
    (root / "house").mkdir()
    for name, text in texts.items():
        (root / "house" / f"{name}.py").write_text(text)
    return import_graph(root, "house", tree_of)


@pytest.mark.parametrize(
    "closing",
    [
        "from house.one import A\n",
        "from house import one\n",
        "import house.one\n",
        "def late():\n    from house.one import A\n",
        "LATE = 'house.one:main'\n",
        "if TYPE_CHECKING:\n    X = 1\nelse:\n    from house.one import A\n",
    ],
)
def test_a_circle_is_seen_wherever_the_import_is(tmp_path: Path, closing: str) -> None:
    """One imports two at once, and two imports one in some way."""
    graph = write_modules(tmp_path, one="from house.two import B\n", two=closing)
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def test_imports_for_types_alone_close_no_circle(tmp_path: Path) -> None:
    """Nothing is imported by them when the program runs."""
    closing = "if TYPE_CHECKING:\n    from house.one import A\n"
    graph = write_modules(tmp_path, one="from house.two import B\n", two=closing)
    assert graph == {"house.one": {"house.two"}, "house.two": set()}
    TopologicalSorter(graph).prepare()


def test_a_package_that_loads_its_modules_when_asked_imports_them(tmp_path: Path) -> None:
    """Its modules must not ask it in turn."""
    offer = "if TYPE_CHECKING:\n    from house.one import A\n\ndef __getattr__(name): ...\n"
    graph = write_modules(tmp_path, __init__=offer, one="from house.two import B\n", two="from house import A\n")
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()
