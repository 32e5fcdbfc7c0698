"""A small world for the determinism tests: an echo server that is killed again and again, and clients that retry."""

from __future__ import annotations

import asyncio

from hal.core.model.errors import UnreachableError
from hal.core.model.ids import StepId
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.agent_keeper import Signal

KILLS = 5


async def server(runtime: Runtime) -> None:
    async def serve(connection: Connection) -> None:
        while (frame := await connection.receive()) is not None:
            await runtime.run_blocking(lambda: None)
            await connection.send(frame)

    await runtime.listen(UnixAddress(runtime.paths.wire_socket()), serve)
    await runtime.stopping.wait()


async def client(runtime: Runtime) -> None:
    while not runtime.stopping.is_set():
        try:
            connection = await runtime.connect(UnixAddress(runtime.paths.wire_socket()))
            while True:
                name = runtime.new_id()
                await connection.send(Signal(epoch=runtime.now_ms(), steps=(StepId(1, 0, 1, 0),), name=name))
                if await connection.receive() is None:
                    break
                runtime.log.info("echoed", name=name)
                await runtime.sleep(runtime.random().randint(0, 50))
        except UnreachableError as error:
            runtime.log.warning("retrying", reason=error.message)
            await runtime.sleep(runtime.random().randint(10, 100))


def run_echo(seed: int) -> str:
    """The digest of one run."""
    with VirtualWorld(seed) as world:
        host = world.host("n1")
        rng = world.rng("faults")
        for number in range(3):
            world.start(host, f"client-{number}", client)

        async def drive() -> None:
            for _ in range(KILLS):
                process = world.start(host, "server", server)
                process.kill_after(rng.randint(1, 400))
                await process.wait()
                await asyncio.sleep(rng.random())

        world.run(drive())
        return world.digest()
