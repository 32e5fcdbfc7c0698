"""How the files under spec/ are generated; `make lint` checks that they are what the code generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hal.spec import DOCUMENTS, drifted, write


def test_what_is_missing_or_differs_is_written_and_nothing_else(tmp_path: Path) -> None:
    """--check fails with the names; writing makes it pass."""
    assert drifted(tmp_path) == list(DOCUMENTS)
    assert write(tmp_path) == list(DOCUMENTS)
    schema = tmp_path / "jobspec.schema.json"
    schema.write_bytes(schema.read_bytes().replace(b"walltime", b"wall_time"))
    check = [sys.executable, "-m", "hal.spec", "--check", str(tmp_path)]
    failed = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == f"{schema} has drifted; run `python -m hal.spec`\n"
    assert write(tmp_path) == ["jobspec.schema.json"]
    assert drifted(tmp_path) == []
