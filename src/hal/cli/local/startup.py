"""The start of HAL on this machine: start what does not run, and wait until it works; all or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from hal.cli.kit.progress import Progress
from hal.cli.kit.screen import Screen
from hal.cli.local import processes
from hal.cli.local.layout import Layout, NodePlan, same_or_refused
from hal.cli.local.processes import Process
from hal.client.addresses.address import Address
from hal.client.sync_client import Client
from hal.core.model import (
    ConflictError,
    HALError,
    NodeState,
    OverloadedError,
    SpecError,
    StoreError,
    UnreachableError,
)
from hal.core.model.printable import printable
from hal.runtime.home import Home
from hal.runtime.link_note import read_link_note, remove_link_note
from hal.runtime.startup import EXIT_BAD_INPUT, EXIT_STORE, read_stage

_AWAY = (NodeState.UNREACHABLE, NodeState.STOPPED, NodeState.DOWN, NodeState.REMOVED)
FOLLOWING = "following"
"""Status of a controller that does not lead; the nodes of its machine wait until it does."""
HEALTHY_S = 600.0
"""How long a controller may take to answer; a first start compiles its kernels, minutes on a busy machine."""
JOINED_S = 60.0
"""How long the nodes may take to join after that."""
_ERROR_OF_EXIT: Final[dict[int | None, type[HALError]]] = {EXIT_BAD_INPUT: SpecError, EXIT_STORE: StoreError}
"""Exit codes of a process whose last line is the whole error: about hal.toml, about the store."""


def start_missing(
    screen: Screen, home: Home, layout: Layout, saved: Layout | None, *, new_store: bool = False
) -> list[str]:
    """Start what does not run, and wait until everything works; returns the names of what was started.

    Args:
        new_store: accept a store that is not the one used before.
    Raises:
        StoreError: the store cannot be opened, or is not the one used before.
        ConflictError: HAL runs with other nodes, or the leading controller has nodes with these names.
        UnreachableError: something did not start; what was started here is stopped again.
    """
    controller = processes.controller(home)
    if new_store and controller.identity:
        raise ConflictError("--new-store: HAL is running and using its store", hint="stop it first: hal down --leave")
    if saved is not None and (
        (controller.identity and (saved.tcp, saved.wire) != (layout.tcp, layout.wire))
        or (processes.nodes_with_processes(home) and saved.nodes != layout.nodes)
    ):
        same_or_refused(layout, saved)
    started: list[Process] = []
    client = Client(Address(home=home), reconnect_s=0.0)
    try:
        with Progress(screen) as progress:
            waiting = _Waiting(screen, home, progress, started)
            answers = partial(_answers, client, home, layout, started, new_store=new_store)
            waiting.until(answers, HEALTHY_S, "the controller", controller)
            _refuse_names_of_others(client, layout)
            for plan in layout.nodes:
                _start_gone(home, plan, started)
            for plan in layout.nodes:
                remove_link_note(home, plan.name)  # what a running agent noted before is out of date
                joined = partial(_there, client, home, layout, plan, started)
                waiting.until(joined, JOINED_S, f"node {plan.name}", processes.agent(home, plan.name))
    except BaseException:
        for process in reversed(started):
            process.undo()
        processes.remove_sockets(home)
        raise
    finally:
        client.close()
    return [process.name for process in started]


class _Waiting:
    """Waits for one thing after another, and shows for how long."""

    def __init__(self, screen: Screen, home: Home, progress: Progress, started: Sequence[Process]) -> None:
        self._screen = screen
        self._home = home
        self._progress = progress
        self._started = started
        self._since_s = time.monotonic()
        self._shown: dict[str, int] = {}
        """How many lines of a process's own output were shown, such as that it compiles its kernels."""

    def until(self, done: Callable[[], bool], timeout_s: float, what: str, whose_log: Process) -> None:
        """Wait until `done()`.

        Raises:
            SpecError: hal.toml, or an option, is malformed.
            UnreachableError: a process ended, or `timeout_s` passed; the end of its log has been shown.
        """

        def report() -> None:
            for process in self._started:
                for line in process.output_lines()[self._shown.get(process.name, 0) :]:
                    if line.startswith(f"hal {process.name}: "):
                        continue  # its last line: the error that follows repeats it
                    self._progress.clear()
                    self._screen.note(f"{process.name}: {line}")
                    self._shown[process.name] = self._shown.get(process.name, 0) + 1
            doing = read_stage(self._home)
            self._progress.show(
                f"waiting for {what}{f' ({doing})' if doing else ''}, {time.monotonic() - self._since_s:.0f} s"
            )

        try:
            ended = processes.wait_until(done, self._started, timeout_s, report)
        except TimeoutError:
            self._show_log(whose_log)
            raise UnreachableError(
                f"{what} is not ready after {timeout_s:.0f} s", hint=f"see its log: {whose_log.log_path}"
            ) from None
        if ended is not None and ended.ended_early in _ERROR_OF_EXIT and (lines := ended.output_lines()):
            raise _ERROR_OF_EXIT[ended.ended_early](lines[-1].removeprefix(f"hal {ended.name}: "))
        if ended is not None:
            self._show_log(ended)
            raise UnreachableError(
                f"{ended.name} did not start: it ended with exit code {ended.ended_early}",
                hint=f"see its log: {ended.log_path}",
            )

    def _show_log(self, process: Process) -> None:
        self._progress.clear()
        for line in process.tail()[self._shown.get(process.name, 0) :]:
            print(printable(f"  {process.name}: {line}"), file=self._screen.err)


def _healthy(client: Client) -> bool:
    try:
        return client.health().status != "starting"
    except (UnreachableError, OverloadedError):
        return False


def _start_gone(home: Home, plan: NodePlan, started: list[Process]) -> None:
    """Start a node if neither its keeper nor its agent runs, once; if one of them runs, it starts the other."""
    keeper = processes.keeper(home, plan.name)
    known = any(process.name == keeper.name for process in started)
    if not known and not keeper.identity and not processes.agent(home, plan.name).identity:
        remove_link_note(home, plan.name)
        started.append(processes.start_keeper(home, plan))


def _answers(client: Client, home: Home, layout: Layout, started: list[Process], *, new_store: bool = False) -> bool:
    """Whether the controller answers; one that does not run, or was killed since, is started, once."""
    controller = processes.controller(home)
    if not any(process.name == controller.name for process in started) and not controller.identity:
        started.append(processes.start_controller(home, layout.tcp, layout.wire, new_store=new_store))
    return _healthy(client)


def _there(client: Client, home: Home, layout: Layout, plan: NodePlan, started: list[Process]) -> bool:
    """Whether the node has joined, or waits for its controller to lead; what was killed since is started again.

    Raises:
        ConflictError: the controller refuses it until a person does something.
    """
    if not _answers(client, home, layout, started):
        return False
    _start_gone(home, plan, started)
    if _follows(client) or _joined(client, plan.name):
        return True
    note = read_link_note(home, plan.name)
    if note is not None and note.refused:
        raise ConflictError(f"the controller refuses node {plan.name}: {note.text}")
    return False


def _follows(client: Client) -> bool:
    try:
        return client.health().status == FOLLOWING
    except (UnreachableError, OverloadedError):
        return False


def _refuse_names_of_others(client: Client, layout: Layout) -> None:
    """Refuse names that nodes of another machine have.

    The nodes of a controller that follows are connected to nobody, so a connected node of that name is another one.

    Raises:
        ConflictError: there is one; once this controller leads, its work would run twice under that name.
    """
    if not _follows(client):
        return
    try:
        heard = {node.name for node in client.nodes() if node.state not in _AWAY}
    except (UnreachableError, OverloadedError):
        return
    for plan in layout.nodes:
        if plan.name in heard:
            raise ConflictError(
                f"the leading controller already has a node '{plan.name}'",
                hint="give the nodes of this machine other names: hal up --name NAME",
            )


def _joined(client: Client, name: str) -> bool:
    try:
        return any(node.name == name and node.state not in _AWAY for node in client.nodes())
    except (UnreachableError, OverloadedError):
        return False
