"""`python -m hal.daemons.agent.keeper.file_service`: the file service of one node; see the package."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from hal.core.model import HALError
from hal.core.model.gate_protocol import GateAnswer, GateVerdictWord
from hal.daemons.agent.arguments import NodeArguments, parse_arguments
from hal.daemons.agent.file_orders import MAX_ORDER_BYTES, decode_request
from hal.daemons.agent.keeper.file_service.bundle_cache import BundleCache
from hal.daemons.agent.keeper.file_service.controller_link import ControllerLink
from hal.daemons.agent.keeper.file_service.places import step_directories
from hal.daemons.agent.keeper.file_service.service import FileService
from hal.daemons.agent.keeper.file_service.trees import Trees
from hal.daemons.agent.node_file import read_node_section, run_as_owner
from hal.runtime.authority import NodeIdentity
from hal.runtime.home import Home
from hal.runtime.inheritance import confine_daemon
from hal.runtime.interface import Address, Runtime, TcpAddress, UnixAddress
from hal.runtime.process import run
from hal.runtime.sockets import is_trusted_peer, peer_of
from hal.runtime.step_users import Serving, serving
from hal.wire.address import parse_address

BACKLOG: Final = 64
"""Questions of which the connection was not accepted yet."""
ORDER_S: Final = 5.0
"""How long the agent may take to send a line that it has begun."""
LOOK_S: Final = 1.0
IDLE_S: Final = 900.0
"""It ends after this long without a question."""


class QuestionSocket:
    """Where the agent asks."""

    def __init__(self, runtime: Runtime, service: FileService, path: Path) -> None:
        self._runtime = runtime
        self._service = service
        self._path = path
        self._asked_s = 0.0
        self._open = 0

    async def serve(self) -> None:
        """Until it was idle for long, or the socket is gone: HAL has ended."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()  # of one that died: there is one at a time, as its pid file says
        server = await asyncio.start_unix_server(self._answer, path=self._path, backlog=BACKLOG, limit=MAX_ORDER_BYTES)
        self._path.chmod(0o600)
        inode = os.lstat(self._path).st_ino
        self._asked_s = loop.time()
        try:
            while self._is_served(inode) and not self._runtime.stopping.is_set():
                await asyncio.sleep(LOOK_S)
                if self._open or self._service.busy:
                    self._asked_s = loop.time()
                elif loop.time() - self._asked_s > IDLE_S:
                    break
                await self._service.forget_old()
        finally:
            server.close()
            if self._is_served(inode):
                self._path.unlink()
            await self._service.close()

    def _is_served(self, inode: int) -> bool:
        """Whether the path still leads here."""
        try:
            return os.lstat(self._path).st_ino == inode
        except OSError:
            return False

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if not is_trusted_peer(peer_of(writer.get_extra_info("socket").fileno())):
                return
            async with asyncio.timeout(ORDER_S):
                line = await reader.readline()
            try:
                answer = await self._service.answer(decode_request(line))
            except msgspec.DecodeError as error:
                answer = GateAnswer(state=GateVerdictWord.REFUSED, reason=f"the question is not understood: {error}")
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the agent has gone: it asks again
        finally:
            self._open -= 1
            writer.close()


async def serve(runtime: Runtime, arguments: NodeArguments) -> int:
    """Run the service of a node; returns the exit code."""
    home, node = runtime.paths, arguments.node
    how = serving(run_as_owner(home.config))
    shared = how is Serving.EACH_AS_ITSELF
    addresses: list[Address] = [TcpAddress(*parse_address(one)) for one in arguments.controllers]
    identity = NodeIdentity(home.node(node).identity) if addresses else None
    link = ControllerLink(
        runtime,
        node,
        addresses or [UnixAddress(home.wire_socket())],
        lambda: None if identity is None else identity.credentials,
    )
    kept = home.node(node).files
    trees = Trees(step_directories(home, node, shared=shared), kept, shared=shared, new_id=runtime.new_id)
    trees.open()
    cache = BundleCache(runtime, link, kept, read_node_section(home.config).files_cache_bytes)
    await cache.open()
    service = FileService(runtime, trees, cache, link, each_as_itself=shared)
    await QuestionSocket(runtime, service, home.files_socket(node)).serve()
    return 0


def main(argv: list[str]) -> int:
    """Run it; returns the process's exit code."""
    arguments = parse_arguments("hal-files", argv)
    return run(f"files-{arguments.node}", Home(arguments.home), lambda runtime: serve(runtime, arguments))


if __name__ == "__main__":
    confine_daemon()
    try:
        sys.exit(main(sys.argv[1:]))
    except HALError as error:
        sys.exit(f"hal-files: {error}")
