"""`python -m hal.daemons.agent`: the agent of one node."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from hal.core.model.errors import SpecError
from hal.core.model.facts import Facts, check_domain
from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.arguments import parse_arguments
from hal.daemons.agent.node_file import read_node_section
from hal.runtime.home import Home
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.machine import read_machine
from hal.runtime.process import run
from hal.runtime.startup import EXIT_BAD_INPUT


def main(argv: list[str]) -> int:
    """Run; the process's exit code."""
    arguments = parse_arguments("hal-agent", argv)
    home = Home(arguments.home)
    try:
        section = read_node_section(home.config)
    except SpecError as error:
        print(f"hal-agent: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    domain = arguments.domain or check_domain(section.domain)

    def facts() -> Facts:
        return replace(read_machine(home.root), domain=domain)

    keeper_argv = [sys.executable, "-m", "hal.daemons.agent.keeper", *arguments.words()]

    async def serve(runtime: Runtime) -> int:
        settings = AgentSettings(
            arguments.node,
            UnixAddress(runtime.paths.wire_socket()),
            UnixAddress(runtime.paths.keeper_socket(arguments.node)),
            keeper_argv,
            facts,
            section.labels,
        )
        return await Agent(runtime, settings).run()

    return run(f"agent-{arguments.node}", home, serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
