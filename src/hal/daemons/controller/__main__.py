"""`python -m hal.daemons.controller --home H`: the controller as a process. See docs/controller.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hal.core.model import InternalError
from hal.runtime import startup, step_users
from hal.runtime.home import Home, find_home
from hal.runtime.inheritance import confine_daemon
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.kernel_cache import check_cache, hold_kernels, mark_used
from hal.runtime.process import allow_many_connections, run

if TYPE_CHECKING:
    from hal.daemons.controller.config import Config

CACHE_VARIABLE = "NUMBA_CACHE_DIR"


def main(argv: list[str] | None = None) -> int:
    """Parse, point numba's cache at HAL_HOME, run until asked to end."""
    parser = argparse.ArgumentParser(prog="hal-controller", description=__doc__)
    parser.add_argument("--home", help="HAL_HOME")
    parser.add_argument("--listen", default="", metavar="HOST:PORT", help="also serve REST on TCP, with a token")
    parser.add_argument("--wire", default="", metavar="HOST:PORT", help="listen here for agents of other machines")
    parser.add_argument("--new-store", action="store_true", help="accept an empty or older store as this HAL's own")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    asked = parser.parse_args(argv)
    home = find_home(asked.home)
    allow_many_connections()
    work = partial(serve, home=home, listen=asked.listen, wire=asked.wire, new_store=asked.new_store)
    return run("controller", home, work, log_level=asked.log_level)


async def serve(runtime: Runtime, *, home: Home, listen: str, wire: str = "", new_store: bool = False) -> int:
    """One controller with REST, until the runtime is asked to stop.

    Args:
        new_store: the store may be another one than the one that was used before.
    """
    with ExitStack() as starting:
        tell = starting.enter_context(startup.report_stages(home))
        config = await _prepared(runtime, home, listen, wire, tell)
        tell("loading its jobs")
        from hal.core.kernels.structures.jit import stamp_of_all
        from hal.daemons.controller.api.front import RestFront
        from hal.daemons.controller.config import reached, serves_tls
        from hal.daemons.controller.elector import LeaderElector
        from hal.daemons.controller.following.presence import Presence
        from hal.daemons.controller.following.shared_authority import shared_authority
        from hal.daemons.controller.service.status import VERSION
        from hal.runtime.machine import host_name
        from hal.store import Store, StoreMark

        # Kernels that another policy needs are loaded when it comes.
        with hold_kernels(stamp_of_all()):
            agents = UnixAddress(home.wire_socket())
            mark = StoreMark(home.store_mark, runtime.boot_id)
            if new_store:
                runtime.log.warning("the existing store was accepted as this HAL's own", former=mark.seen.instance)
                mark.accept_another()
            open_store = partial(Store.open, config.store_url or home.database, mark=mark)
            front = RestFront(runtime, config, home)
            host, wired = host_name(), reached(config.wire, config.address)
            presence = Presence(runtime, host=host, version=VERSION, rest=front.rest, wire=wired, secret=front.secret)
            needed = config.wire is not None or serves_tls(config)
            authority = partial(shared_authority, open_store, home.authority, runtime.now_ms(), needed=needed)
            elector = LeaderElector(
                runtime, config, agents, open_store, front, starting.close, presence=presence, authority=authority
            )
            await elector.run()
    return 0


async def _prepared(runtime: Runtime, home: Home, listen: str, wire: str, tell: Callable[[str], None]) -> Config:
    """Its configuration, once everything is loaded that a leader needs."""
    tell("reading its configuration")
    choose_cache(home)
    from hal.core.kernels.structures.jit import stamp_of_all
    from hal.daemons.controller.startup import kernel_loading

    mark_used(stamp_of_all())
    if not kernel_loading.compiled():
        runtime.log.warning("compiling the scheduling kernels; this takes a minute or two, once")
        sys.stdout.write("compiling the scheduling kernels; this takes a minute or two, once\n")
        sys.stdout.flush()
    from hal.daemons.controller.config import read_config, with_addresses
    from hal.daemons.controller.startup.plugins import load_policies
    from hal.rest.server.listeners import user_name
    from hal.runtime.config_file import config_text, is_anothers
    from hal.runtime.machine import host_name

    config = with_addresses(read_config(config_text(home.config), is_anothers), listen, wire)
    config = replace(
        config,
        address=config.address or host_name(),
        serving=step_users.serving(config.access.run_as_owner),
        runs_as=user_name(os.geteuid()),
    )
    policies = load_policies()
    if policies:
        runtime.log.info("policies were loaded", names=policies)
    # Beside the loop, so that a controller that compiles can be asked to stop.
    await runtime.run_blocking(partial(kernel_loading.warm, config.engine, tell))
    return config


def choose_cache(home: Home) -> None:
    """Where numba keeps compiled kernels, unless NUMBA_CACHE_DIR says so.

    Raises:
        DeniedError: others may write to it.
        InternalError: too late: numba read it when it was imported.
    """
    if "numba" in sys.modules:
        raise InternalError("numba was imported before its cache directory was chosen")
    os.environ.setdefault(CACHE_VARIABLE, str(home.cache))
    check_cache(Path(os.environ[CACHE_VARIABLE]))


if __name__ == "__main__":
    confine_daemon(database=True)
    sys.exit(main())
