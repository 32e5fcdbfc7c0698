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
from hal.runtime import startup, step_users, stream_relay
from hal.runtime.home import Home, find_home
from hal.runtime.inheritance import confine_daemon
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.kernel_cache import CACHE_VARIABLE, check_cache, hold_kernels, mark_used
from hal.runtime.process import RUN_AGAIN, allow_many_connections, run
from hal.runtime.started_service import StartedService

if TYPE_CHECKING:
    from hal.daemons.controller.config import Config

MODULE = "hal.daemons.controller"
NEW_STORE = "--new-store"


def main(argv: list[str] | None = None) -> int:
    """Parse, point numba's cache at HAL_HOME, run until asked to end."""
    parser = argparse.ArgumentParser(prog="hal-controller", description=__doc__)
    parser.add_argument("--home", help="HAL_HOME")
    parser.add_argument("--listen", default="", metavar="HOST:PORT", help="also serve REST on TCP, with a token")
    parser.add_argument("--wire", default="", metavar="HOST:PORT", help="listen here for agents of other machines")
    parser.add_argument(NEW_STORE, action="store_true", help="accept an empty or older store as this HAL's own")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    asked = parser.parse_args(argv)
    home = find_home(asked.home)
    allow_many_connections()
    work = partial(serve, home=home, listen=asked.listen, wire=asked.wire, new_store=asked.new_store)
    words = [word for word in (sys.argv[1:] if argv is None else argv) if word != NEW_STORE]  # it was accepted
    again = (sys.executable, "-m", MODULE, *words)
    return run("controller", home, work, log_level=asked.log_level, again=again)


async def serve(runtime: Runtime, *, home: Home, listen: str, wire: str = "", new_store: bool = False) -> int:
    """One controller with REST, until the runtime is asked to stop.

    Args:
        new_store: the store may be another one than the one that was used before.
    Returns: the exit code, or RUN_AGAIN: kernels that ran as plain Python are compiled by now.
    """
    with ExitStack() as starting:
        tell = starting.enter_context(startup.report_stages(home))
        tell("reading its configuration")
        choose_cache(home)
        config = _configuration(home, listen, wire)
        from hal.core.kernels.structures.jit import stamp_of_all
        from hal.daemons.controller.startup import kernel_choice
        from hal.store import Store, StoreMark

        mark = StoreMark(home.store_mark, runtime.boot_id)
        if new_store:
            runtime.log.warning("the existing store was accepted as this HAL's own", former=mark.seen.instance)
            mark.accept_another()
        open_store = partial(Store.open, config.store_url or home.database, mark=mark)
        mark_used(stamp_of_all())
        compilation = kernel_choice.KernelCompilation(runtime)
        if await runtime.run_blocking(partial(kernel_choice.run_plain, open_store)):
            runtime.spawn_task(compilation.run(), "compile-kernels")
        await _load(runtime, config, tell)
        tell("loading its jobs")
        from hal.daemons.controller.api.front import RestFront
        from hal.daemons.controller.config import reached, serves_tls
        from hal.daemons.controller.elector import LeaderElector
        from hal.daemons.controller.following.presence import Presence
        from hal.daemons.controller.following.shared_authority import shared_authority
        from hal.daemons.controller.metrics.book import MetricsBook
        from hal.daemons.controller.service.status import VERSION
        from hal.runtime.machine import host_name

        # Kernels that another policy needs are loaded when it comes.
        with hold_kernels(stamp_of_all()):
            agents = UnixAddress(home.wire_socket())
            metrics = MetricsBook()
            metrics.watch(runtime, VERSION)
            front = RestFront(runtime, config, home, metrics)
            host, wired = host_name(), reached(config.wire, config.address)
            presence = Presence(runtime, host=host, version=VERSION, rest=front.rest, wire=wired, secret=front.secret)
            needed = config.wire is not None or serves_tls(config)
            authority = partial(shared_authority, open_store, home.authority, runtime.now_ms(), needed=needed)
            elector = LeaderElector(
                runtime,
                config,
                agents,
                open_store,
                front,
                starting.close,
                presence=presence,
                authority=authority,
                remark=lambda: compilation.note,
                relay=_relay(home, config),
                metrics=metrics,
            )
            await elector.run()
    return RUN_AGAIN if compilation.done else 0


def _relay(home: Home, config: Config) -> StartedService | None:
    """What passes streams on between clients and nodes; None where neither could be on another machine."""
    if config.tcp is None and config.wire is None:
        return None
    socket = home.relay_socket()
    return StartedService(
        name="the relay of streams",
        socket=socket,
        argv=[sys.executable, "-I", "-S", stream_relay.__file__, str(socket), "", str(config.relay_port)],
        output=home.output_file("relay"),
    )


def _configuration(home: Home, listen: str, wire: str) -> Config:
    """Its configuration.

    Raises:
        SpecError: hal.toml, the file of the topology, or an option is malformed.
    """
    from hal.daemons.controller.config import read_config, with_addresses, with_topology
    from hal.rest.server.listeners import user_name
    from hal.runtime.config_file import config_text, is_anothers
    from hal.runtime.machine import host_name
    from hal.runtime.topology_file import read_topology

    config = with_addresses(read_config(config_text(home.config), is_anothers), listen, wire)
    config = with_topology(config, partial(read_topology, home.config.parent))
    return replace(
        config,
        address=config.address or host_name(),
        serving=step_users.serving(config.access.run_as_owner),
        runs_as=user_name(os.geteuid()),
    )


async def _load(runtime: Runtime, config: Config, tell: Callable[[str], None]) -> None:
    """Load policies and kernels: everything that a leader needs."""
    from hal.daemons.controller.startup import kernel_loading
    from hal.daemons.controller.startup.kernel_choice import compiled, runs_plain
    from hal.daemons.controller.startup.plugins import load_policies

    if runs_plain():
        _say(runtime, "compiling the scheduling kernels in the background, once; HAL works meanwhile")
    elif not compiled():
        _say(runtime, "compiling the scheduling kernels; this takes a minute or two, once")
    policies = load_policies()
    if policies:
        runtime.log.info("policies were loaded", names=policies)
    # Beside the loop, so that a controller that compiles can be asked to stop.
    await runtime.run_blocking(partial(kernel_loading.warm, config.engine, tell))


def _say(runtime: Runtime, line: str) -> None:
    """To the log, and to whoever starts this process."""
    runtime.log.warning(line)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


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
