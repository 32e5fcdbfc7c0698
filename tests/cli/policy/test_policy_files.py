"""A policy is read from a whole hal.toml: what the file says besides is left to whoever reads that."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.cli.policy.policy import _read_file
from hal.core.model import SpecError


def test_a_whole_hal_toml_is_read_as_a_policy(tmp_path: Path) -> None:
    """Its topology and its GPUs are no part of it."""
    file = tmp_path / "hal.toml"
    file.write_text('[topology]\nlevels = ["rack"]\n[queues.batch]\npriority = 3\n[[node.gpus]]\nmodel = "a100"\n')
    assert _read_file(str(file)).queues["batch"].priority == 3


def test_a_misspelt_section_is_refused(tmp_path: Path) -> None:
    """It may have been meant for the policy."""
    file = tmp_path / "hal.toml"
    file.write_text("[topolgy]\n")
    with pytest.raises(SpecError, match="unknown field 'topolgy'"):
        _read_file(str(file))
