"""Which broker a worker dials, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.daemons.worker.course import DIAL_DURABLE_S, Course
from hal.daemons.worker.worker import DIAL_FOR_S
from hal.runtime.session_file import new_session_file


@pytest.mark.parametrize("durable", [False, True])
def test_a_broker_that_is_started_again_is_dialled_for_longer(tmp_path: Path, durable: bool) -> None:
    """That of a durable session is, on its journal; any other one is gone for good."""
    session = new_session_file(tmp_path, name="test", durable=durable)
    assert Course(session, 0).dial_s == (DIAL_DURABLE_S if durable else DIAL_FOR_S)
