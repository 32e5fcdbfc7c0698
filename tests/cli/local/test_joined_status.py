"""`hal status` in the home of a node that joined another machine's HAL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hal.cli.local.layout import AgentLayout, NodePlan
from hal.runtime.home import Home
from hal.runtime.identity import write_pid_file
from hal.runtime.link_note import LinkNote, write_link_note
from tests.cli.conftest import Ran

Hal = Callable[..., Ran]


def joined(home: Home) -> None:
    """The home of node w1 of head."""
    home.create()
    plan = NodePlan(name="w1", cpu_milli=2_000, memory_bytes=1 << 30)
    AgentLayout(node=plan, controllers=("head:7422",)).save(home)


def test_a_joined_host_says_what_it_is_and_how_to_start_it(hal: Hal, hal_home: Path) -> None:
    """Its agent does not run: the advice is that of this machine, not `hal up`, which is refused there."""
    joined(Home(hal_home))  # type: ignore[arg-type]
    ran = hal("status")
    assert (ran.code, ran.out.splitlines()[0]) == (5, "this is node w1 of head:7422, not connected")
    assert "! the agent of node w1 does not run → start it: hal agent" in ran.out
    assert "hal up" not in ran.out


def test_a_joined_host_says_since_when_it_is_connected(hal: Hal, hal_home: Path) -> None:
    """What the running agent noted, and when: this process stands in for it."""
    home = Home(hal_home)
    joined(home)
    write_pid_file(home.agent_pid("w1"))
    write_link_note(home, "w1", LinkNote(True, "head:7422"))
    ran = hal("status")
    assert (ran.code, ran.out.startswith("this is node w1 of head:7422, connected since 20")) == (0, True)
    assert '"connected": true' in hal("status", "--json").out
