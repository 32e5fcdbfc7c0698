"""`python -m hal.daemons.collector`: the collector beside the HAL of HAL_HOME, until it is stopped.

`hal up --with observability` starts it. It serves REST at `observability.sock` beside the controller's socket.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from hal.core.model import HALError
from hal.core.model.config_sections import read_own
from hal.core.model.observability_config import OBSERVABILITY, ObservabilitySection
from hal.core.model.printable import printable
from hal.daemons.collector.assembly import assemble
from hal.daemons.collector.collector import Collector
from hal.daemons.collector.interface import INTERFACE
from hal.rest.daemon import serve
from hal.rest.limits import Limits
from hal.rest.server.http_server import HttpServer
from hal.rest.server.network_ports import open_tls_port, url_at
from hal.runtime.config_file import config_text
from hal.runtime.home import find_home
from hal.runtime.inheritance import confine_daemon
from hal.runtime.interface import Runtime
from hal.runtime.process import run
from hal.runtime.startup import EXIT_BAD_INPUT

NAME: Final = "observability"
"""Of the plane, its process, its socket and its section of hal.toml."""
NICE: Final = 10
"""What watches a machine gives way to what runs on it: where both share a host, jobs and the controller come first."""


async def main(runtime: Runtime) -> int:
    """Collect and serve until asked to stop; returns the exit code."""
    try:
        section = read_own(config_text(runtime.paths.config), OBSERVABILITY, str(runtime.paths.config))
    except HALError as error:
        print(printable(f"hal {NAME}: {error}"), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    collector = assemble(runtime, section)
    collector.start()
    server = await _serve(runtime, section, collector)
    runtime.log.info("ready")
    await runtime.stopping.wait()
    await server.stop()
    await collector.stop()
    return 0


async def _serve(runtime: Runtime, section: ObservabilitySection, collector: Collector) -> HttpServer:
    """On its socket, and on the network where it is to."""
    limits = Limits(section=NAME)
    if not section.listen:
        return await serve(runtime, INTERFACE, collector, limits=limits)
    site = (Path(section.tls_cert), Path(section.tls_key)) if section.tls_cert else None
    setting, file = f"{NAME}.listen", collector.directory / "rest.pem"
    server = await serve(
        runtime,
        INTERFACE,
        collector,
        limits=limits,
        ports=lambda: open_tls_port(runtime, section.listen, section.address, file, site, setting=setting),
        unserved=lambda error: collector.note_unserved(str(error)),
    )
    if not collector.unserved:
        collector.reception.serve_rest_at(url_at(section.listen, section.address))
    return server


if __name__ == "__main__":
    confine_daemon()
    os.nice(NICE)
    sys.exit(run(NAME, find_home(), main))
