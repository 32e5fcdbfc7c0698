"""Starting again what ended: the controller, the nodes and the planes of this machine.

A process that ends is started again after FIRST_DELAY_S; each time that it ends soon, the delay doubles, up to
MOST_DELAY_S. One that ran for SOUND_S begins anew. A controller whose configuration or store is refused is left until a
person acts: another try would fail in the same way. What is wanted is read from the layout that `hal up` saves, so a
second `hal up` changes it; `hal down` ends the supervisor first.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from hal.cli.local import processes
from hal.cli.local.layout import AgentLayout, Layout, NodePlan, saved_agent, saved_layout
from hal.cli.local.processes import Plane, Process
from hal.core.model import ConflictError, HALError
from hal.core.model.config_sections import parse_toml, read_sections
from hal.core.model.supervision_config import NO_SUPERVISION_SECTION, SUPERVISION, PlaneSection
from hal.runtime.config_file import config_text
from hal.runtime.home import Home
from hal.runtime.identity import running
from hal.runtime.link_note import remove_link_note
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular
from hal.runtime.startup import EXIT_BAD_INPUT, EXIT_STORE, MAX_SUPERVISION_BYTES, SUPERVISION_FILE, SUPERVISOR

FIRST_DELAY_S: Final = 0.5
MOST_DELAY_S: Final = 60.0
SOUND_S: Final = 120.0
MAX_OUTPUT_BYTES: Final = 16 << 20
"""A plane's own output is moved to `plane-NAME.out.1` when it is longer."""
MAX_ENDED_CHARS: Final = 200
_HOPELESS: Final = (EXIT_BAD_INPUT, EXIT_STORE)


class Tried(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the supervisor knows of one process; `hal status` shows it."""

    starts: int = 0
    """How many times the supervisor started it."""
    next_s: float = 0.0
    """When it is tried again, in seconds of the clock since boot; 0: it runs."""
    ended: str = ""
    """How it ended last: the exit code, and the last line of its output."""
    given_up: bool = False
    """It is not tried again until a person acts."""


class Note(msgspec.Struct, kw_only=True):
    """`run/supervision.json`: what the supervisor knows, for `hal status`."""

    processes: dict[str, Tried] = {}


class Pause:
    """When a process may be started again; times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._delay_s = 0.0
        self._began_s = 0.0
        self.next_s = 0.0

    def started(self, now_s: float) -> None:
        """It was started."""
        self._began_s = now_s

    def ended(self, now_s: float) -> None:
        """It was found ended."""
        sound = now_s - self._began_s >= SOUND_S
        self._delay_s = FIRST_DELAY_S if sound or not self._delay_s else min(2 * self._delay_s, MOST_DELAY_S)
        self.next_s = now_s + self._delay_s


class Kept:
    """One process that is kept running."""

    def __init__(self, name: str, runs: Callable[[], bool], start: Callable[[], Process]) -> None:
        self.name = name
        self.tried = Tried()
        self._runs = runs
        self._start = start
        self._child: Process | None = None
        self._pause = Pause()
        self._ran = True
        self._seen = False
        """Whether it has run at all."""

    def take_over(self, before: Kept) -> None:
        """Know what was known of the process before the layout was read again."""
        self.tried, self._child, self._pause = before.tried, before._child, before._pause
        self._ran, self._seen = before._ran, before._seen

    def look(self, now_s: float) -> bool:
        """Whether it is due to be started now."""
        if self._runs() or (self._child is not None and self._child.ended_early is None):
            if not self._ran:
                self._pause.started(now_s)  # by somebody else
            self._ran = self._seen = True
            self.tried.given_up, self.tried.next_s = False, 0.0
            return False
        if self._ran:
            self._ran = False
            self._pause.ended(now_s)
            self.tried.next_s = self._pause.next_s
            self.tried.ended = self._how_it_ended()
            self.tried.given_up = self._child is not None and self._child.ended_early in _HOPELESS
        return not self.tried.given_up and now_s >= self._pause.next_s

    def start(self, now_s: float) -> None:
        """Start it again."""
        self._pause.started(now_s)
        self._ran = True
        self.tried.starts += 1
        self.tried.next_s = 0.0
        try:
            self._child = self._start()
        except (HALError, OSError) as error:  # no such program, a full disk
            self._child = None
            self._ran = False
            self._pause.ended(now_s)
            why = error.message if isinstance(error, HALError) else str(error)
            self.tried.next_s, self.tried.ended = self._pause.next_s, why[:MAX_ENDED_CHARS]

    def _how_it_ended(self) -> str:
        code = None if self._child is None else self._child.ended_early
        if self._child is None or code is None:
            return "ended" if self._seen else ""
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f"{how}: {' '.join(self._child.tail()[-1:])}".removesuffix(": ")[:MAX_ENDED_CHARS]


class Supervisor:
    """Keeps what the layout of one home wants running; looks when told to."""

    def __init__(self, home: Home, log: Callable[..., None]) -> None:
        self._home = home
        self._log = log
        self._kept: dict[str, Kept] = {}
        self._saved = b""
        self._trouble = ""
        """What was logged last of a look that could not be taken; it is logged once."""

    @property
    def note(self) -> Note:
        """What is known of each."""
        return Note(processes={name: kept.tried for name, kept in self._kept.items()})

    def look(self, now_s: float) -> None:
        """Start what is due; nothing while a `hal up` or `hal down` runs."""
        try:
            self._read_layout()
        except (HALError, OSError) as error:
            self._complain("the layout cannot be read", error)
            return
        due = [kept for kept in self._kept.values() if kept.look(now_s)]
        over = [name for name in processes.planes_with_processes(self._home) if f"plane-{name}" not in self._kept]
        if due or over:
            try:
                with processes.one_at_a_time(self._home, wait_s=0.0):
                    self._start(due, now_s)
                    processes.stop_planes(self._home, over)
            except ConflictError:
                return
        try:
            self._save()
        except OSError as error:  # a full disk: `hal status` shows what was known before
            self._complain("what is known of the processes cannot be saved", error)
        else:
            self._trouble = ""

    def _complain(self, what: str, error: Exception) -> None:
        text = f"{what}: {error}"
        if text != self._trouble:
            self._log(what, error=str(error))
        self._trouble = text

    def _start(self, due: Sequence[Kept], now_s: float) -> None:
        for kept in due:
            if kept.look(now_s):  # nobody started it meanwhile
                self._log("starting a process", name=kept.name, ended=kept.tried.ended, starts=kept.tried.starts)
                kept.start(now_s)

    def _read_layout(self) -> None:
        """What is wanted now; what was tried of those that are still wanted is kept."""
        layout: Layout | AgentLayout | None = saved_layout(self._home) or saved_agent(self._home)
        planes = plane_sections(self._home)
        wanted = {} if layout is None else _wanted(self._home, layout, planes)
        for name, kept in wanted.items():
            if name in self._kept:
                kept.take_over(self._kept[name])
        self._kept = wanted
        for name in planes:
            _shorten(self._home, name)

    def _save(self) -> None:
        note = msgspec.json.encode(self.note)
        if note != self._saved:
            write_private(self._home.run_dir / SUPERVISION_FILE, note.decode())
            self._saved = note


def read_note(home: Home) -> Note:
    """What the supervisor noted; nothing if none runs."""
    if running(home.pid_file(SUPERVISOR)) is None:
        return Note()
    try:
        return msgspec.json.decode(read_regular(home.run_dir / SUPERVISION_FILE, MAX_SUPERVISION_BYTES), type=Note)
    except (OSError, msgspec.DecodeError):
        return Note()


def plane_sections(home: Home) -> dict[str, PlaneSection]:
    """HAL's own planes and those that hal.toml declares, by name; the file may declare one of HAL's own otherwise.

    Raises:
        SpecError: the file or the section is malformed.
    """
    raw = parse_toml(config_text(home.config))
    name = SUPERVISION.name
    section = read_sections({name: raw[name]}, (SUPERVISION,))[SUPERVISION] if name in raw else NO_SUPERVISION_SECTION
    return {**OWN_PLANES, **section.planes}


OWN_PLANES: Final = MappingProxyType(
    {
        "observability": PlaneSection(
            command=(sys.executable, "-m", "hal.daemons.collector"), health="observability.sock"
        ),
        "web": PlaneSection(command=(sys.executable, "-m", "hal.web"), health="web.sock"),
    }
)
"""The planes that come with HAL: `hal up --with NAME` starts them without a word in hal.toml."""


def _wanted(home: Home, layout: Layout | AgentLayout, planes: dict[str, PlaneSection]) -> dict[str, Kept]:
    if not layout.restart:
        return {}
    if isinstance(layout, AgentLayout):
        nodes: Sequence[NodePlan] = (layout.node,)
        controllers = layout.controllers
        kept = []
    else:
        nodes, controllers = layout.nodes, ()
        kept = [
            Kept(
                "controller",
                lambda: processes.controller(home).identity is not None,
                lambda: processes.start_controller(home, layout.tcp, layout.wire),
            )
        ]
    for plan in nodes:

        def node_runs(name: str = plan.name) -> bool:
            """If one of keeper and agent runs, it starts the other."""
            return bool(processes.keeper(home, name).identity or processes.agent(home, name).identity)

        def start_node(plan: NodePlan = plan) -> Process:
            remove_link_note(home, plan.name)
            return processes.start_keeper(home, plan, controllers)

        kept.append(Kept(f"node-{plan.name}", node_runs, start_node))
    for name in layout.planes if isinstance(layout, Layout) else ():
        if name in planes:
            kept.append(_kept_plane(home, name, planes[name].command))
    return {one.name: one for one in kept}


def _kept_plane(home: Home, name: str, command: Sequence[str]) -> Kept:
    def start() -> Process:
        plane = Plane(home, name)
        plane.start_command(command)
        return plane

    return Kept(f"plane-{name}", lambda: Plane(home, name).identity is not None, start)


def _shorten(home: Home, plane: str) -> None:
    """Its output is appended to: what is there is copied away, and the file emptied."""
    output = home.output_file(f"plane-{plane}")
    try:
        if output.lstat().st_size > MAX_OUTPUT_BYTES:
            shutil.copyfile(output, output.with_name(f"{output.name}.1"))
            os.truncate(output, 0)
    except OSError:
        return
