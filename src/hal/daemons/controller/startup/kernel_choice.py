"""How the kernels run in this process: compiled, or as plain Python while another process compiles them.

Compiling takes a minute or two, and the first answer after an installation should not. Plain Python decides the same,
a hundred times slower, which few jobs do not notice. When the cache is complete, the controller begins anew in its own
process: leadership, connections and jobs go the way of any orderly restart. Numba is told before kernels are defined.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hal.core.model import HALError, InternalError
from hal.runtime.interface import Process, Runtime
from hal.runtime.kernel_cache import CACHE_VARIABLE
from hal.runtime.regular_files import read_regular
from hal.store import Store, StoreError

PLAIN_UP_TO_JOBS: Final = 10_000
"""With more live jobs than these, compiling first is faster than loading them into kernels of plain Python."""
FIRST_OF_KERNELS: Final = "hal.core.kernels.structures.memory"
"""The first module with kernels that anybody imports."""
COMPILER: Final = "hal.runtime.kernel_compiler"
OUTPUT: Final = "kernels"
MAX_OUTPUT_BYTES: Final = 1 << 16


def compiled() -> bool:
    """Whether kernels need no compiling: all of these sources were compiled before, or they run as plain Python."""
    from hal.core.kernels.structures.jit import stamp_of_all

    return runs_plain() or stamp_of_all().exists()


def runs_plain() -> bool:
    """Whether the kernels run as plain Python in this process."""
    import numba

    return bool(getattr(numba.config, "DISABLE_JIT", 0))


def run_plain(open_store: Callable[[], Store]) -> bool:
    """Run the kernels as plain Python in this process if they were not compiled and few jobs live; returns whether.

    Args:
        open_store: opens the store; where it cannot be opened, whoever leads will say why.
    Raises:
        InternalError: too late: kernels are loaded.
    """
    if compiled() or not _writable(Path(os.environ[CACHE_VARIABLE])):
        return False
    try:
        store = open_store()
    except StoreError:
        return False
    try:
        live = sum(count for state, count in store.counts().items() if not state.ended)
    except StoreError:
        return False
    finally:
        store.close()
    if live > PLAIN_UP_TO_JOBS:
        return False
    if FIRST_OF_KERNELS in sys.modules:
        raise InternalError("kernels are loaded: it is too late to choose how they run")
    import numba

    numba.config.DISABLE_JIT = 1  # type: ignore[attr-defined]
    return True


def _writable(cache: Path) -> bool:
    """Whether compiled kernels can be kept; if not, a compiled cache would never be found."""
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    return os.access(existing, os.W_OK | os.X_OK)


class KernelCompilation:
    """Compiles the kernels in a process of their own, once in the life of this one."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._output = runtime.paths.output_file(OUTPUT)
        self.done = False
        """The cache is complete, and this process was asked to stop for that reason alone."""
        self.note = ""
        """For people; empty where there is nothing to say."""

    async def run(self) -> None:
        """Until all are compiled, and then ask this process to stop; or until that has failed, which is said."""
        log = self._runtime.log
        self.note = "the scheduling kernels are being compiled; until then large workloads are scheduled slowly"
        argv = (sys.executable, "-m", COMPILER, "--cache", os.environ[CACHE_VARIABLE], "--for-parent")
        process: Process | None = None
        try:
            process = await self._runtime.start_process(argv, output=self._output)
            code = await process.wait()
        except HALError as error:
            why = str(error)
        else:
            why = "" if code == 0 else self._last_line() or f"exit code {code}"
        finally:
            if process is not None:
                process.kill()
        if why:
            log.error("compiling the scheduling kernels failed", reason=why)
            self.note = (
                f"the scheduling kernels could not be compiled ({why}); large workloads are scheduled slowly. See "
                f"{self._output}, and try again with: hal down --leave; hal up"
            )
            return
        self.note = ""
        if not self._runtime.stopping.is_set():
            self.done = True
            self._runtime.stop("the scheduling kernels are compiled: going over to them")

    def _last_line(self) -> str:
        try:
            text = read_regular(self._output, MAX_OUTPUT_BYTES).decode(errors="replace")
        except OSError:
            return ""
        return text.strip().rpartition("\n")[2][:200]
