"""Who may speak: the kernel's word on the peer decides, on real processes under another user id."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hal.core.model.errors import DeniedError
from hal.runtime.interface import Connection, Lane, Peer, UnixAddress
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.sockets import is_trusted_peer
from hal.wire.codec import FrameDecoder
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.hello import Goodbye
from tests.runtime.real_runtime import log_text, run_real

OTHER_UID = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

DIAL = f"""
import os, socket, sys
os.setuid({OTHER_UID})
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
data = b""
while piece := sock.recv(4096):
    data += piece
sys.stdout.buffer.write(data)
"""

SERVE = f"""
import os, socket, sys
os.setuid({OTHER_UID})
sock = socket.socket(socket.AF_UNIX)
sock.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
sock.listen()
print("ready", flush=True)
sock.accept()
sys.stdin.read()
"""


def test_this_user_and_root_may_speak_and_nobody_else() -> None:
    """The rule itself."""
    assert is_trusted_peer(Peer(1, os.geteuid(), 0))
    assert is_trusted_peer(Peer(1, 0, 0))
    assert not is_trusted_peer(Peer(1, os.geteuid() + 1, 0))


@needs_root
def test_another_user_is_told_denied_and_never_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when the socket's file would let it in: a child under another user id gets only a Goodbye."""
    # Below /tmp: every directory on the way can be opened to the other user.
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    served: list[Connection] = []

    async def main(runtime: RealRuntime) -> bytes:
        async def serve(connection: Connection) -> None:
            served.append(connection)

        path = runtime.paths.wire_socket()
        await runtime.listen(UnixAddress(path), serve)
        # The doors that would keep it out are opened, so that only the check of the peer is left.
        path.parent.chmod(0o755)
        path.chmod(0o777)
        dial = [sys.executable, "-c", DIAL, str(path)]
        return await runtime.run_blocking(lambda: subprocess.check_output(dial, timeout=60), Lane.READER)

    answer = FrameDecoder(CONTROLLER_AGENT).feed(run_real(tmp_path, main))
    assert [frame.code for frame in answer if isinstance(frame, Goodbye)] == ["denied"]
    assert served == []
    assert f'"uid":{OTHER_UID}' in log_text(tmp_path)


@needs_root
def test_a_server_of_another_user_is_not_believed(tmp_path: Path) -> None:
    """Somebody else listens where the controller should: dialling it is DeniedError, and it is told nothing."""
    open_dir = Path(tempfile.mkdtemp(prefix="hal-t-"))
    open_dir.chmod(0o777)
    path = open_dir / "x.sock"
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"

        async def main(runtime: RealRuntime) -> None:
            with pytest.raises(DeniedError, match=str(OTHER_UID)):
                await runtime.connect(UnixAddress(path))

        run_real(tmp_path, main)
    finally:
        server.kill()
        server.communicate()
        shutil.rmtree(open_dir)
