"""What importing HAL costs."""

from __future__ import annotations

import subprocess
import sys

import hal


def loaded_by(statement: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after the statement and not before."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before), sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.split())


def test_importing_hal_loads_nothing_else() -> None:
    """The names of the package are imported at first use."""
    loaded = loaded_by("import hal")
    assert loaded <= {"hal", "__future__"}, sorted(loaded)


def test_the_sync_client_needs_no_asyncio_client_no_rich_no_numpy() -> None:
    """httpx alone would double the time."""
    heavy = {"httpx", "asyncio", "rich", "numpy", "numba", "sqlalchemy", "litestar", "click", "structlog"}
    assert not heavy & {name.partition(".")[0] for name in loaded_by("from hal import Client")}


def test_every_public_name_can_be_imported() -> None:
    """`__all__` and the lazy table say the same."""
    assert {name for name in hal.__all__ if getattr(hal, name) is None} == set()
    assert set(hal.__all__) == set(hal._HOME_OF) | {"__version__"}


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """hasattr and import work as for any module."""
    assert not hasattr(hal, "submit_all")
