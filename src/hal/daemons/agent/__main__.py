"""`python -m hal.daemons.agent`: the agent of one node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from hal.core.model.declared_gpus import declared_gpus
from hal.core.model.devices import GPU, indexes_to_bind
from hal.core.model.errors import SpecError
from hal.core.model.facts import Facts, check_domain
from hal.core.model.node_config import NodeSection
from hal.core.model.printable import printable
from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.arguments import NodeArguments, parse_arguments
from hal.daemons.agent.gate_notes import GateFiles
from hal.daemons.agent.health import Condition
from hal.daemons.agent.keeper import stream_service
from hal.daemons.agent.keeper.file_service.places import step_directories
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from hal.daemons.agent.node_file import read_node_section, run_as_owner
from hal.daemons.agent.node_id import identify_home, read_node_id
from hal.daemons.agent.output_tails import OutputPlaces
from hal.daemons.agent.secret_files import HOSTS_PREFIX, SecretFiles, memory_places
from hal.daemons.agent.step_files import START_TRIES, FilePlaces
from hal.daemons.agent.step_service import StreamPlaces
from hal.daemons.agent.telemetry.sampler import Readers
from hal.runtime.authority import NodeIdentity
from hal.runtime.home import Home
from hal.runtime.inheritance import confine_daemon
from hal.runtime.interface import Runtime, TcpAddress, UnixAddress
from hal.runtime.link_note import write_link_note
from hal.runtime.machine import memory_available_bytes, read_machine, space_at
from hal.runtime.process import run
from hal.runtime.started_service import StartedService
from hal.runtime.startup import EXIT_BAD_INPUT
from hal.runtime.step_users import Serving, own_account, serving
from hal.runtime.stream_certificate import own_certificate
from hal.wire.address import parse_address


def main(argv: list[str]) -> int:
    """Run the agent; returns the process's exit code."""
    arguments = parse_arguments("hal-agent", argv)
    home = Home(arguments.home)
    try:
        section = read_node_section(home.config)
    except SpecError as error:
        print(printable(f"hal-agent: {error}"), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT

    async def serve(runtime: Runtime) -> int:
        return await Agent(runtime, build_settings(arguments, section, runtime.paths, runtime.new_id)).run()

    return run(f"agent-{arguments.node}", home, serve)


def build_settings(
    arguments: NodeArguments, section: NodeSection, home: Home, new_id: Callable[[], str]
) -> AgentSettings:
    """Build the settings of a node's agent: for the controller of this home, or for those of another machine."""
    domain = arguments.domain or check_domain(section.domain)
    id_file = home.node(arguments.node).id_file
    sandbox = find_sandbox()
    how = serving(run_as_owner(home.config))

    declared = declared_gpus(section.gpus)

    def facts() -> Facts:
        machine = read_machine(home.root, declared=declared)
        return replace(
            machine,
            bound_gpus=indexes_to_bind(machine.gpus, arguments.capacity.get(GPU, 0), arguments.gpus),
            domain=domain,
            address=arguments.address,
            sandbox=sandbox,
            steps=how,
            account=own_account(),
            node_id=read_node_id(id_file, new_id),
            home_id=identify_home(home.root),
        )

    def condition() -> Condition:
        space = space_at(home.root)
        memory = memory_available_bytes()
        return Condition(None, memory_free_bytes=memory) if space is None else Condition(*space, memory)

    here = AgentSettings(
        node=arguments.node,
        controller=UnixAddress(home.wire_socket()),
        keeper=UnixAddress(home.keeper_socket(arguments.node)),
        keeper_argv=[sys.executable, "-m", "hal.daemons.agent.keeper", *arguments.words()],
        facts=facts,
        section=section,
        condition=condition,
        gate_notes=GateFiles(home.node(arguments.node).gates),
        host_files=SecretFiles(
            home.node(arguments.node).hostfiles,
            memory_places(),
            each_as_itself=how is Serving.EACH_AS_ITSELF,
            prefix=HOSTS_PREFIX,
        ),
        secret_files=SecretFiles(
            home.node(arguments.node).secrets,
            memory_places(),
            each_as_itself=how is Serving.EACH_AS_ITSELF,
        ),
        streams=StreamPlaces(
            service=StartedService(
                name="the stream service of this node",
                socket=home.stream_socket(arguments.node),
                argv=[sys.executable, "-I", "-S", stream_service.__file__, str(home.stream_socket(arguments.node))],
                output=home.output_file(f"streams-{arguments.node}"),
            ),
            own_certificate=partial(own_certificate, home.node(arguments.node).root / "streams.pem"),
            directory=lambda: str(home.passage() if how is Serving.EACH_AS_ITSELF else home.socket_dir()),
            shared=how is Serving.EACH_AS_ITSELF,
        ),
        files=FilePlaces(
            service=StartedService(
                name="the file service of this node",
                socket=home.files_socket(arguments.node),
                argv=[sys.executable, "-m", "hal.daemons.agent.keeper.file_service", *arguments.words()],
                output=home.output_file(f"files-{arguments.node}"),
                start_tries=START_TRIES,
            ),
            kept=home.node(arguments.node).files,
            directories=lambda: step_directories(home, arguments.node, shared=how is Serving.EACH_AS_ITSELF),
        ),
        outputs=OutputPlaces(home.node(arguments.node).steps, home.node(arguments.node).root / "read-outputs"),
        logs=OutputPlaces(home.log_dir, home.node(arguments.node).root / "read-logs"),
        readers=Readers(home.root),
        on_link=partial(write_link_note, home, arguments.node),
    )
    if not arguments.controllers:
        return here
    identity = NodeIdentity(home.node(arguments.node).identity)
    certificate = str(identity.credentials.certificate)
    first, *others = (TcpAddress(*parse_address(one)) for one in arguments.controllers)
    return here._replace(
        controller=first,
        others=tuple(others),
        identity=identity,
        streams=None if here.streams is None else replace(here.streams, certificate=certificate),
    )


if __name__ == "__main__":
    confine_daemon()
    sys.exit(main(sys.argv[1:]))
