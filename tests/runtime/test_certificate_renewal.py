"""The next certificate is asked for over the live connection when two thirds of the present one's time are over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hal.runtime.certificate_renewal import RenewalOverConnection
from hal.runtime.interface import Connection, TcpAddress
from hal.runtime.real_runtime import RealRuntime
from hal.wire.frames.joining import Joined, Renew
from hal.wire.roles import Role
from tests.runtime.certified import DAY_MS, Certified, now_ms
from tests.runtime.real_runtime import run_real

HOUR_MS = DAY_MS // 24


def test_a_certificate_past_two_thirds_is_replaced(tmp_path: Path) -> None:
    """With a fresh key; the next connection shows it, and it is not asked for again."""
    hal = Certified(tmp_path)
    node = hal.node("n1", ago_ms=20 * HOUR_MS)
    asked: list[Renew] = []

    async def main(runtime: RealRuntime) -> None:
        serials = []

        async def serve(connection: Connection) -> None:
            assert connection.certified is not None
            serials.append(connection.certified.serial)
            while (frame := await connection.receive()) is not None:
                assert isinstance(frame, Renew)
                asked.append(frame)
                issued = hal.authority.certify(frame.request, Role.AGENT, "n1", now_ms(), DAY_MS)
                await connection.send(
                    Joined(
                        name="n1",
                        certificate=issued.certificate,
                        authority=hal.authority.pem,
                        expires_ms=issued.expires_ms,
                    )
                )

        listener = await runtime.listen(TcpAddress("127.0.0.1", 0), serve, hal.controller)
        before = node.renewal_ms()
        assert before < now_ms()
        connection = await runtime.connect(listener.address, credentials=node.credentials)
        renewing = RenewalOverConnection(runtime, node, connection, runtime.log)
        answer = await connection.receive(60_000)
        assert isinstance(answer, Joined)
        renewing.joined(answer)
        while node.renewal_ms() == before:
            await runtime.sleep(1)
        assert node.renewal_ms() > now_ms()
        again = await runtime.connect(listener.address, credentials=node.credentials)
        async with asyncio.timeout(60):
            while len(serials) < 2:
                await runtime.sleep(1)
        assert len(set(serials)) == 2
        assert len(asked) == 1
        renewing.stop()
        again.close()

    run_real(tmp_path, main)


def test_a_young_certificate_is_left_alone(tmp_path: Path) -> None:
    """Nothing is said before its time."""
    hal = Certified(tmp_path)
    node = hal.node("n1", ago_ms=15 * HOUR_MS)

    async def main(runtime: RealRuntime) -> None:
        heard: list[object] = []

        async def serve(connection: Connection) -> None:
            while (frame := await connection.receive()) is not None:
                heard.append(frame)

        listener = await runtime.listen(TcpAddress("127.0.0.1", 0), serve, hal.controller)
        connection = await runtime.connect(listener.address, credentials=node.credentials)
        renewing = RenewalOverConnection(runtime, node, connection, runtime.log)
        for _ in range(50):
            await runtime.sleep(1)
        renewing.stop()
        await listener.close()
        assert heard == []

    run_real(tmp_path, main)
