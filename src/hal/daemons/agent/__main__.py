"""`python -m hal.daemons.agent`: the agent of one node."""

from __future__ import annotations

import sys

from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.arguments import parse_arguments
from hal.runtime.home import Home
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.process import run


def main(argv: list[str]) -> int:
    """Run; the process's exit code."""
    arguments = parse_arguments("hal-agent", argv)
    keeper_argv = [sys.executable, "-m", "hal.daemons.agent.keeper", *arguments.words()]

    async def serve(runtime: Runtime) -> int:
        settings = AgentSettings(
            arguments.node,
            UnixAddress(runtime.paths.wire_socket()),
            UnixAddress(runtime.paths.keeper_socket(arguments.node)),
            keeper_argv,
        )
        return await Agent(runtime, settings).run()

    return run(f"agent-{arguments.node}", Home(arguments.home), serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
