"""Starting what is missing of a HAL on this machine, and waiting until it works; all or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from hal.cli import processes
from hal.cli.layout import Layout, NodePlan, same_or_refused
from hal.cli.processes import Process
from hal.cli.progress import Progress
from hal.cli.screen import Screen
from hal.client.address import Address
from hal.client.sync import Client
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
from hal.runtime.link_note import forget_link, read_link
from hal.runtime.startup import EXIT_BAD_INPUT, EXIT_STORE, stage

_AWAY = (NodeState.UNREACHABLE, NodeState.DOWN, NodeState.REMOVED)
FOLLOWING = "following"
"""Status of a controller that does not lead: nodes of its machine wait until it does."""
HEALTHY_S = 600.0
"""How long a controller may take to answer; a first start compiles its kernels, minutes on a busy machine."""
JOINED_S = 60.0
"""How long the nodes may take to join after that."""
_WHOLE_STORY: Final[dict[int | None, type[HALError]]] = {EXIT_BAD_INPUT: SpecError, EXIT_STORE: StoreError}
"""Exit codes with which a process has said all there is to say: of hal.toml, of the store."""


def start_missing(
    screen: Screen, home: Home, layout: Layout, saved: Layout | None, *, new_store: bool = False
) -> list[str]:
    """Start what does not run, and wait until all of it works; names of what was started.

    Args:
        new_store: the store may be another one than the one that was used before.
    Raises:
        StoreError: the store cannot be opened, or is not the one that was used before.
        ConflictError: a HAL of another shape runs, or the controller follows one that has nodes of these names.
        UnreachableError: something did not start; what was started here is stopped again.
    """
    controller = processes.controller(home)
    if new_store and controller.identity:
        raise ConflictError("--new-store: HAL runs, on the store that it has", hint="stop it first: hal down --leave")
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
                forget_link(home, plan.name)  # what an agent that runs was told before says nothing of now
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
    """Waits for one thing after another, and says how long it has been."""

    def __init__(self, screen: Screen, home: Home, progress: Progress, started: Sequence[Process]) -> None:
        self._screen = screen
        self._home = home
        self._progress = progress
        self._started = started
        self._since_s = time.monotonic()
        self._told: dict[str, int] = {}
        """How many lines of a process's own output were passed on: that it compiles its kernels, say."""

    def until(self, done: Callable[[], bool], timeout_s: float, what: str, whose_log: Process) -> None:
        """Wait until `done()`.

        Raises:
            SpecError: hal.toml, or an option, is malformed.
            UnreachableError: a process ended, or `timeout_s` passed; the end of its log has been shown.
        """

        def tell() -> None:
            for process in self._started:
                for line in process.said()[self._told.get(process.name, 0) :]:
                    if line.startswith(f"hal {process.name}: "):
                        continue  # its last word: the error that follows says it
                    self._progress.clear()
                    self._screen.note(f"{process.name}: {line}")
                    self._told[process.name] = self._told.get(process.name, 0) + 1
            doing = stage(self._home)
            self._progress.say(
                f"waiting for {what}{f' ({doing})' if doing else ''}, {time.monotonic() - self._since_s:.0f} s"
            )

        try:
            ended = processes.wait_until(done, self._started, timeout_s, tell)
        except TimeoutError:
            self._show_log(whose_log)
            raise UnreachableError(
                f"{what} is not ready after {timeout_s:.0f} s", hint=f"its log: {whose_log.log_path}"
            ) from None
        if ended is not None and ended.ended_early in _WHOLE_STORY and (said := ended.said()):
            raise _WHOLE_STORY[ended.ended_early](said[-1].removeprefix(f"hal {ended.name}: "))
        if ended is not None:
            self._show_log(ended)
            raise UnreachableError(
                f"{ended.name} did not start: it ended with exit code {ended.ended_early}",
                hint=f"its log: {ended.log_path}",
            )

    def _show_log(self, process: Process) -> None:
        self._progress.clear()
        for line in process.tail()[self._told.get(process.name, 0) :]:
            print(printable(f"  {process.name}: {line}"), file=self._screen.err)


def _healthy(client: Client) -> bool:
    try:
        return client.health().status != "starting"
    except (UnreachableError, OverloadedError):
        return False


def _start_gone(home: Home, plan: NodePlan, started: list[Process]) -> None:
    """Start a node of which neither keeper nor agent runs, once; as long as one of them does it starts the other."""
    keeper = processes.keeper(home, plan.name)
    known = any(process.name == keeper.name for process in started)
    if not known and not keeper.identity and not processes.agent(home, plan.name).identity:
        forget_link(home, plan.name)
        started.append(processes.start_keeper(home, plan))


def _answers(client: Client, home: Home, layout: Layout, started: list[Process], *, new_store: bool = False) -> bool:
    """The controller answers; started, once, when none runs: also one that was killed since this began."""
    controller = processes.controller(home)
    if not any(process.name == controller.name for process in started) and not controller.identity:
        started.append(processes.start_controller(home, layout.tcp, layout.wire, new_store=new_store))
    return _healthy(client)


def _there(client: Client, home: Home, layout: Layout, plan: NodePlan, started: list[Process]) -> bool:
    """The node has joined, or waits for its controller, which follows, to lead; what ran of it, or of the controller,
    and has been killed since, is started.

    Raises:
        ConflictError: the controller will not take it in until a person does something.
    """
    if not _answers(client, home, layout, started):
        return False
    _start_gone(home, plan, started)
    if _follows(client) or _joined(client, plan.name):
        return True
    note = read_link(home, plan.name)
    if note is not None and note.refused:
        raise ConflictError(f"node {plan.name} was not taken in: {note.text}")
    return False


def _follows(client: Client) -> bool:
    try:
        return client.health().status == FOLLOWING
    except (UnreachableError, OverloadedError):
        return False


def _refuse_names_of_others(client: Client, layout: Layout) -> None:
    """Nodes of a controller that follows speak to nobody: one of their names that is heard is another machine's.

    Raises:
        ConflictError: there is such a one; when this controller leads its work would run again under that name.
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
                f"node '{plan.name}' is one of the leading controller's already",
                hint="give those of this HAL other names: hal up --name NAME",
            )


def _joined(client: Client, name: str) -> bool:
    try:
        return any(node.name == name and node.state not in _AWAY for node in client.nodes())
    except (UnreachableError, OverloadedError):
        return False
