"""What a daemon keeps of its starter's environment, and what it passes on: variables by name, umask, limits.

The shell of `hal up` may hold passwords and tokens of its owner, a umask of 000, and an unlimited core file size. Every
process of the same user can read the environment of another in /proc, so what a daemon does not need is removed before
it starts; and other processes of its user can neither read nor dump a daemon's memory. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Collection, Mapping
from typing import Final

NAMES: Final = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "HAL_HOME",
        "HAL_CACHE",
        "HAL_KEEP_ENV",
        "HAL_CORE_LIMIT",
        "HAL_RUN_AS_OWNER",
        "HAL_TEST_RUN",
    }
)
"""Variables that a daemon keeps."""
PREFIXES: Final = ("LC_", "XDG_", "PYTHON", "NUMBA_", "COVERAGE_", "COV_CORE_", "CUDA_", "NVIDIA_")
"""Prefixes of further variables that it keeps."""
DATABASE_PREFIXES: Final = ("PG",)
"""Prefixes that only the controller keeps: how it connects to PostgreSQL."""
KEEP_VARIABLE: Final = "HAL_KEEP_ENV"
"""Further names to keep, separated by commas; one that ends with * is a prefix."""
CORE_VARIABLE: Final = "HAL_CORE_LIMIT"
"""The core file size that the starter allowed, for the steps: daemons write none."""
SCRIPT_NAMES: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
"""Variables that a site's scripts (prolog, epilog, health check) see, besides LC_* and those that HAL sets."""
DAEMON_UMASK: Final = 0o077
STEP_UMASK: Final = 0o022
"""Of steps whose job names none, and of a site's scripts, whatever the umask of HAL's starter was."""
PR_SET_DUMPABLE: Final = 4


def daemon_environment(environ: Mapping[str, str], *, database: bool = False) -> dict[str, str]:
    """Select the environment of a daemon.

    Args:
        environ: of its starter.
        database: it connects to the store.
    """
    asked = [name.strip() for name in environ.get(KEEP_VARIABLE, "").split(",") if name.strip()]
    names = NAMES | {name for name in asked if not name.endswith("*")}
    prefixes = (*PREFIXES, *(name[:-1] for name in asked if name.endswith("*")))
    if database:
        prefixes += DATABASE_PREFIXES
    return {name: value for name, value in environ.items() if name in names or name.startswith(prefixes)}


def script_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Select what a site's script sees of its daemon's environment."""
    return {name: value for name, value in environ.items() if name in SCRIPT_NAMES or name.startswith("LC_")}


def confine_daemon(*, database: bool = False, keep: Collection[str] = ()) -> None:
    """Give this process a daemon's settings: few variables, private files, no core file, memory that no other
    process reads.

    Called first, however it was started; its children inherit the variables.

    Args:
        database: it connects to the store.
        keep: names of further variables, of a daemon that is a job's step.
    """
    kept = daemon_environment(os.environ, database=database)
    for name in [name for name in os.environ if name not in kept and name not in keep]:
        del os.environ[name]
    os.umask(DAEMON_UMASK)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    os.environ.setdefault(CORE_VARIABLE, str(soft))
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
