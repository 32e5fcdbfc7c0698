"""The commands of a group are described in whole sentences."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cli.conftest import Ran

Hal = Callable[..., Ran]


@pytest.mark.parametrize("group", ["", "cron", "session", "node", "secret", "service", "config", "certificate"])
def test_no_description_of_a_command_ends_in_dots(group: str, hal: Hal) -> None:
    """A sentence that is too long for its line ends at a pause."""
    listed = hal(*group.split(), "--help").out.partition("Commands:" if group else "Jobs:")[2]
    assert listed
    assert not re.findall(r"^ .*\.\.\.$", listed, re.M)
