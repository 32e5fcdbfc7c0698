"""The files under spec/ are what the code generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hal.spec import DOCUMENTS, drifted, rendered, write

ROOT = Path(__file__).resolve().parents[2] / "spec"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_generated_file_has_not_drifted(name: str) -> None:
    """`python -m hal.spec` writes it anew."""
    assert (ROOT / name).read_bytes() == rendered(DOCUMENTS[name]())


def test_what_is_missing_or_differs_is_written_and_nothing_else(tmp_path: Path) -> None:
    """--check fails with the names; writing makes it pass."""
    assert drifted(tmp_path) == list(DOCUMENTS)
    assert write(tmp_path) == list(DOCUMENTS)
    schema = tmp_path / "jobspec.schema.json"
    schema.write_bytes(schema.read_bytes().replace(b"walltime", b"wall_time"))
    check = [sys.executable, "-m", "hal.spec", "--check", str(tmp_path)]
    failed = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "jobspec.schema.json has drifted; run `python -m hal.spec`" in failed.stderr
    assert write(tmp_path) == ["jobspec.schema.json"]
    assert subprocess.run(check, check=False).returncode == 0
