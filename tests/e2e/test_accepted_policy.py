"""`hal up` with a hal.toml that would remove what commands have set: listed and refused, then accepted."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import LiveHal


@pytest.mark.slow
def test_up_removes_nothing_of_the_policy_that_nobody_accepted(own_hal: LiveHal) -> None:
    """While HAL runs, the new file is not read, which is said.

    Without a terminal: exit code 6 with the list, and HAL runs with the limit; with --accept-policy it goes.
    """
    assert own_hal.run("up", "--nodes", "1").code == 0
    assert own_hal.run("limit", "add", "each", "--user", "*", "--running", "3").code == 0
    (own_hal.home.config).write_text('[queues.short]\nmax_walltime = "1h"\n')
    again = own_hal.run("up")
    assert (again.code, "hal.toml has been changed since" in again.err, "down --leave" in again.err) == (0, True, True)
    assert "hal.toml has been changed since" in own_hal.run("status").out
    assert own_hal.run("down", "--leave").code == 0
    refused = own_hal.run("up")
    assert (refused.code, "  limits.each\n" in refused.err) == (6, True)
    assert "each" in own_hal.run("limit", "list").out
    status = own_hal.run("status").out
    assert ("limits.each" in status, "changed since" in status) == (True, False)
    assert own_hal.run("up", "--accept-policy").code == 0
    assert "each" not in own_hal.run("limit", "list").out
    assert "short" in own_hal.run("queue", "list").out
