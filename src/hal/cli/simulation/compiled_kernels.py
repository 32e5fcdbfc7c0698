"""The compiled kernels that a replay needs: where they are kept, and whether they must be compiled first."""

from __future__ import annotations

import os
from pathlib import Path

from hal.cli.kit.screen import Screen


def use_cache(screen: Screen) -> None:
    """Set where compiled kernels are kept, before anything of the engine is imported."""
    from hal.runtime.home import find_home
    from hal.runtime.kernel_cache import CACHE_VARIABLE, check_cache

    os.environ.setdefault(CACHE_VARIABLE, str(find_home(screen.home).cache))
    check_cache(Path(os.environ[CACHE_VARIABLE]))


def note_compilation(screen: Screen) -> None:
    """Tell the user when the kernels must be compiled first."""
    from hal.core.kernels.structures.jit import kernel_source_hash, stamp_of_all
    from hal.runtime.kernel_cache import CACHE_VARIABLE, mark_used

    mark_used(stamp_of_all())
    compiled = Path(os.environ[CACHE_VARIABLE]) / f"kernels-{kernel_source_hash()}"
    if next(compiled.rglob("*.nbi"), None) is None:
        screen.note("compiling kernels, once after an installation or update; this takes a minute or two …")
