"""All tests here run real daemons on several hosts, made of network namespaces: slow, and root only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.hosts import missing

_HERE = f"{Path(__file__).parent}{os.sep}"
TIMEOUT_S = 600
"""Of each test: several hosts share this machine's cores, and what is waited for has deadlines of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them slow; skip them where they cannot run."""
    here = [item for item in items if str(item.path).startswith(_HERE)]
    reason = missing() if here else ""
    for item in here:
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
