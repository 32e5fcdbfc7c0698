"""`python -m hal.daemons.agent.keeper`: the keeper of one node, in the foreground."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from datetime import UTC, datetime

from msgspec.structs import replace

from hal.core.model.errors import HALError
from hal.core.model.printable import printable
from hal.daemons.agent.arguments import NodeArguments, parse_arguments
from hal.daemons.agent.keeper.agent_link import AgentLink
from hal.daemons.agent.keeper.agent_process import AgentProcess
from hal.daemons.agent.keeper.core import KeeperCore
from hal.daemons.agent.keeper.cpu_claim import cpus_to_bind
from hal.daemons.agent.keeper.devices import StepDevices
from hal.daemons.agent.keeper.given_files import Scripts
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.limits import DEVICES, Cgroups, cgroup_name
from hal.daemons.agent.keeper.loop import Descriptors, KeeperLoop
from hal.daemons.agent.keeper.old_outputs import DAY_MS, OldOutputs
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.daemons.agent.keeper.ports import KeeperConfig
from hal.daemons.agent.keeper.service_ports import is_port_free
from hal.daemons.agent.keeper.spawner import HelperSpawner
from hal.daemons.agent.keeper.watch import read_clocks
from hal.daemons.agent.node_file import read_node_section, run_as_owner
from hal.runtime.home import Home, NodePaths
from hal.runtime.identity import boot_id, remove_pid_file, write_pid_file
from hal.runtime.inheritance import confine_daemon
from hal.runtime.logfile import LogFile
from hal.runtime.regular_files import open_own
from hal.runtime.step_users import own_account, serving

ALREADY_RUNNING = 75
"""Exit code when another keeper of this node runs."""


def main(argv: list[str]) -> int:
    """Run; the process's exit code."""
    arguments = parse_arguments("hal-keeper", argv)
    home = Home(arguments.home)
    try:
        home.create()
        node = home.node(arguments.node)
        node.create()
        lock = open_own(node.root / "keeper.lock", os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"a keeper of node {arguments.node} runs already", file=sys.stderr)  # noqa: T201
            return ALREADY_RUNNING
        log = Log(LogFile(home.log_file(f"keeper-{arguments.node}")), arguments.node)
        loop = assemble(arguments, home, node, log)
        pid_file = home.keeper_pid(arguments.node)
        write_pid_file(pid_file)
    except (HALError, OSError) as error:
        print(printable(f"hal-keeper: {error}"), file=sys.stderr)  # noqa: T201
        return ALREADY_RUNNING if getattr(error, "errno", 0) == errno.EADDRINUSE else 1
    loop.run()
    remove_pid_file(pid_file)
    return 0


def assemble(arguments: NodeArguments, home: Home, node: NodePaths, log: Log) -> KeeperLoop:
    """All parts of a keeper, its predecessor's steps taken over.

    Raises:
        HALError, OSError: a file, socket or directory cannot be made.
    """
    section = read_node_section(home.config)
    config = KeeperConfig(
        node=arguments.node,
        home=str(home.root),
        capacity=arguments.capacity,
        labels=arguments.labels,
        lease_ms=arguments.lease_ms,
        user=own_account(),
        serving=serving(run_as_owner(home.config)),
        least_uid=section.min_uid,
        no_new_privileges=section.no_new_privileges,
    )
    descriptors = Descriptors()
    link = AgentLink(home.keeper_socket(arguments.node), descriptors)
    journal = FileJournal(node.journal / "keeper.log")
    devices = StepDevices(section.devices)
    cpus, binding_note = cpus_to_bind(section.bind, config.capacity.get("cpu", 0))
    cgroups = Cgroups(
        cgroup_name(str(home.root), arguments.node),
        max_processes=arguments.max_processes,
        devices=devices.restricted,
        binds=cpus is not None,
    )
    config = replace(config, hides_devices=devices.restricted and cgroups.can_limit(DEVICES))
    outputs = OutputFiles(node.steps)
    old_outputs = OldOutputs(outputs, section.outputs_days * DAY_MS, section.outputs_bytes)
    spawner = HelperSpawner(
        config=config,
        journal_dir=node.journal,
        outputs=outputs,
        watcher=descriptors,
        cgroups=cgroups,
        helpers=arguments.helpers or -(-config.capacity.get("cpu", 1000) // 1000),
        log_fd=open_own(home.output_file(f"keeper-{arguments.node}"), os.O_WRONLY | os.O_APPEND),
        environ=os.environ,
        scripts=Scripts(home, f"scripts-{arguments.node}"),
        devices=devices,
        cpus=cpus,
    )
    core = KeeperCore(
        config=config,
        journal=journal,
        spawner=spawner,
        outputs=outputs,
        boot_id=boot_id(),
        notes=cgroups.notes,
        pid=os.getpid(),
        is_port_free=is_port_free,
    )
    core.recover(read_clocks())
    if binding_note:
        log(binding_note)
    for note in (*cgroups.notes, *journal.notes, *spawner.notes):
        log(note)
    log(f"started: {core.active_steps} steps taken over, {core.unacknowledged} exits to report")
    agent = None
    if arguments.with_agent:
        agent = AgentProcess(
            [sys.executable, "-m", "hal.daemons.agent", *arguments.words()],
            home.agent_pid(arguments.node),
            home.output_file(f"agent-{arguments.node}"),
        )
    return KeeperLoop(
        core=core,
        spawner=spawner,
        outputs=outputs,
        old_outputs=old_outputs,
        descriptors=descriptors,
        link=link,
        agent=agent,
        log=log,
    )


class Log:
    """One JSON line an event, as the other daemons write them, without their logging library."""

    def __init__(self, file: LogFile, node: str) -> None:
        self._file = file
        self._node = node

    def __call__(self, event: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"timestamp": at, "level": "info", "event": event, "process": f"keeper-{self._node}", "pid": os.getpid()}
        self._file.write_line(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    confine_daemon()
    sys.exit(main(sys.argv[1:]))
