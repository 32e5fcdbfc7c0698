"""A wheel of this checkout, and an environment to install it in that finds HAL's dependencies and not this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
INSTALL: Final = ("--no-deps", "--no-index", "--ignore-installed")
"""Options of `pip install`: nothing comes from elsewhere."""
DEADLINE_S: Final = 300.0


def build_wheel(directory: Path) -> Path:
    """Build a wheel of this checkout below a directory; its path."""
    source, wheels = directory / "source", directory / "wheels"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source)
    subprocess.run(build, check=True, timeout=DEADLINE_S)
    (wheel,) = wheels.iterdir()
    return wheel


def empty_environment(prefix: Path, *, pip: bool = False) -> None:
    """Make a virtual environment without HAL that sees the packages of this one."""
    venv.create(prefix, with_pip=pip)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)}))
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def install(prefix: Path, wheel: Path) -> None:
    """Install a wheel into an environment."""
    into = (*PIP, "--python", prefix / "bin" / "python", "install", *INSTALL, wheel)
    subprocess.run(into, check=True, timeout=DEADLINE_S)
