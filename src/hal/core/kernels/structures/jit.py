"""How kernels are compiled and called: one decorator, one cache keyed by the hash of all kernel sources.

numba keys its cache by one file's time stamp: change a callee in *another* file and cached callers keep the old code
silently. So the cache directory carries the hash of all kernel sources, set here before any kernel is defined. A shell
that wants the cache elsewhere sets NUMBA_CACHE_DIR before importing this package. No fastmath, no parallel reductions.
"""

from __future__ import annotations

import hashlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast

import numba

from hal.core.kernels.structures.pipelines import (
    NUMBAS_PLACES,
    InnerCompiler,
    InnerDispatcher,
    KernelCompiler,
    KernelPlace,
)

SOURCES: Final = (
    "structures/pipelines",
    "structures/jit",
    "structures/arrays",
    "structures/layout",
    "structures/declaration",
    "structures/declared",
    "structures/memory",
    "structures/bounds",
    "structures/treap",
    "structures/slots",
    "structures/sorting",
    "nodes/touching",
    "nodes/wants",
    "nodes/domains",
    "nodes/compact_nodes",
    "nodes/rows",
    "nodes/reach",
    "rules/booked",
    "rules/licences",
    "rules/ledgers",
    "rules/shares",
    "work/pending",
    "work/running",
    "preemption/searched",
    "preemption/lending",
    "passes/node_scores",
    "passes/placing",
    "passes/preferred",
    "passes/domain_placing",
    "nodes/ends",
    "nodes/releases",
    "passes/candidates",
    "passes/strict_queues",
    "passes/record",
    "passes/groups",
    "passes/group_sets",
    "passes/group_tastes",
    "passes/kept_reservations",
    "passes/head_reservations",
    "passes/group_reservations",
    "passes/easy",
    "timelines/points",
    "timelines/chains",
    "timelines/lines",
    "timelines/node_intervals",
    "passes/planned_reservations",
    "passes/cold_timelines",
    "passes/earlier_starts",
    "passes/node_choice",
    "passes/group_timelines",
    "passes/group_plans",
    "passes/conservative",
    "preemption/claims",
    "preemption/node_prices",
    "preemption/moving",
    "preemption/victims",
    "passes/group_victims",
)
"""Modules of hal.core.kernels whose text decides what is compiled, in the order of their imports."""

_numba_config: Any = numba.config
_njit: Any = numba.njit
_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel_source_hash() -> str:
    """16 hex digits that change with the source of any kernel or the version of numba."""
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for module in SOURCES:
        text = pkgutil.get_data("hal.core.kernels", f"{module}.py")
        digest.update(text or b"")
    return digest.hexdigest()


def stamp_of_all() -> Path:
    """The file in the cache that says that all kernels of these sources were compiled for this Python."""
    return Path(_numba_config.CACHE_DIR) / f"all-of-python-{sys.version_info.major}.{sys.version_info.minor}"


def _use_cache_of_these_sources() -> None:
    """Point numba at a directory that only these sources share, wherever a copy of them lies; numba falls back by
    itself where it cannot write."""
    base = _numba_config.CACHE_DIR or str(Path(__file__).parent / "__pycache__")
    leaf = f"kernels-{kernel_source_hash()}"
    if Path(base).name != leaf:
        _numba_config.CACHE_DIR = str(Path(base) / leaf)
    if not _numba_config.CACHE_LOCATOR_CLASSES:
        places = [f"{KernelPlace.__module__}.{KernelPlace.__qualname__}", *NUMBAS_PLACES]
        _numba_config.CACHE_LOCATOR_CLASSES = ",".join(places)


_use_cache_of_these_sources()


_INNER: Final = {
    "nopython": True,
    "boundscheck": None,
    "error_model": "numpy",
    "_nrt": False,  # no reference counts: kernels allocate nothing
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def inner(function: _Function, **options: bool) -> _Function:
    """Compile a function that only kernels call (not cached by itself: it is part of its callers)."""
    if _numba_config.DISABLE_JIT:
        return function
    compiled: Any = InnerDispatcher(function, {}, _INNER | options, InnerCompiler)
    return cast(_Function, compiled)


def inlined(function: _Function) -> _Function:
    """Like `inner`, and always a part of its callers: for what is short and done for each row."""
    return inner(function, forceinline=True)


def kernel(function: _Function) -> _Function:
    """Compile a function that Python calls, cached on disk."""
    compiled: Any = _njit(
        cache=True,
        error_model="numpy",
        nogil=True,
        _nrt=False,
        no_cfunc_wrapper=True,
        pipeline_class=KernelCompiler,
    )(function)
    return cast(_Function, compiled)


def plain(function: _Function) -> _Function:
    """The Python source of a kernel or inner function and of all that it calls: for a rare question, never compiled."""
    return cast(_Function, _plain(function) if hasattr(function, "py_func") else function)


@cache
def _plain(function: Any) -> Any:
    """A copy of the source whose names lead to sources, too. No kernel calls itself."""
    source: Any = function.py_func
    names = dict(source.__globals__)
    for name in source.__code__.co_names:
        if hasattr(names.get(name), "py_func"):
            names[name] = _plain(names[name])
    return FunctionType(source.__code__, names, source.__name__, source.__defaults__)


def bind(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """The entry point of a kernel for exactly these argument types: skips numba's type dispatch (75 ns an array).

    The caller must go on passing arguments of the same types, number of dimensions and contiguity.
    With NUMBA_DISABLE_JIT=1 it is the plain function.
    """
    dispatcher: Any = function
    if not hasattr(dispatcher, "get_overload"):
        return function
    typeof: Any = numba.typeof
    signature = tuple(typeof(argument) for argument in arguments)
    dispatcher.compile(signature)
    entry: Callable[..., Any] = dispatcher.get_overload(signature)
    return entry
