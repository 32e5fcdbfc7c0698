"""How numba compiles kernels: inner functions have no way in from Python and no machine code of their own.

As it comes, numba gives each function wrappers for Python and C, and makes machine code of it and of everything that it
calls. Of some 390 functions 363 are only called by kernels: for them all of that is thrown away. Here an inner
function is typed, lowered and optimised as numba does it, so kernels come out the same, and that is all. See decision
0036 for the parts of numba that this relies on.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import numba
import numba._dynfunc as _numba_functions
from numba.core import caching as _numba_caching
from numba.core import codegen as _numba_codegen
from numba.core import compiler as _numba_compiler
from numba.core import registry as _numba_registry
from numba.core import typed_passes as _numba_passes
from numba.core.compiler_machinery import register_pass as _numba_register

# numba is not typed.
_functions: Any = _numba_functions
_caching: Any = _numba_caching
_codegen: Any = _numba_codegen
_compiler: Any = _numba_compiler
_registry: Any = _numba_registry
_passes: Any = _numba_passes
_register: Any = _numba_register
_njit: Any = numba.njit


KERNELS: Final = Path(__file__).parents[1]
NUMBAS_PLACES: Final[tuple[str, ...]] = tuple(one.__name__ for one in _caching.CacheImpl._locator_classes)
"""Where numba itself looks for what it has compiled."""


class KernelPlace(_caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """Where compiled kernels lie in the cache: by the directory of their source within this package. As it comes, numba
    takes the whole path, and compiles the same sources in another environment once more."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Of a kernel; None: of anything else, which has its place as numba says."""
        return super().from_function(py_func, py_file) if Path(py_file).is_relative_to(KERNELS) else None

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Of kernels in `passes/easy.py`: `passes`."""
        return "_".join(Path(py_file).relative_to(KERNELS).parent.parts)


class QuickFlags(_compiler.Flags):  # type: ignore[misc]
    """numba's flags with a hash of what was set: numba's own reads all forty options, 150,000 times for all kernels."""

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuickFlags) and self._values == other._values


class InnerLibrary(_codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of an inner function and of what it calls, to be linked into kernels; it is never run by itself."""

    def _finalize_final_module(self) -> None:
        """Checked as numba checks it, and not handed over to be made machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@_register(mutates_CFG=True, analysis_only=False)
class InnerLowering(_passes.NativeLowering):  # type: ignore[misc]
    """numba's lowering, into an `InnerLibrary`, with an entry point that is only a name."""

    _name = "hal_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        described = state.cr.fndesc
        # numba knows an overload by its entry point, so each needs one; `InnerDispatcher` calls none of them.
        entry = _functions.make_function(
            described.lookup_module(), described.qualname, "", 0, state.cr.env, (state.library,)
        )
        state.cr = state.cr._replace(cfunc=entry)
        state.targetctx.insert_user_function(entry, described, [state.library])
        return True


class KernelCompiler(_compiler.Compiler):  # type: ignore[misc]
    """numba's compiler, with flags that hash quickly."""

    def __init__(self, *arguments: Any) -> None:
        *before, flags, local_types = arguments
        super().__init__(*before, QuickFlags(flags), local_types)


class InnerCompiler(KernelCompiler):
    """For functions that only kernels call."""

    def define_pipelines(self) -> list[Any]:
        pipeline = _compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (InnerLowering if one is _passes.NativeLowering else one, why) for one, why in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


class InnerDispatcher(_registry.CPUDispatcher):  # type: ignore[misc]
    """What an inner function is to kernels; a call from Python, in a test, compiles it by itself, as numba does it."""

    def __call__(self, *arguments: Any) -> Any:
        return _by_itself(self.py_func)(*arguments)


@cache
def _by_itself(function: Any) -> Any:
    return _njit(error_model="numpy", _nrt=False)(function)
