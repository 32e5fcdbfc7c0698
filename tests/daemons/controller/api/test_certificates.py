"""Certificates of a controller that cannot be made anew: it goes on with those that it has."""

from __future__ import annotations

from pathlib import Path

from hal.daemons.controller.nodes.certified_port import CertifiedPort
from hal.rest.server.certificate import RestCertificate
from hal.runtime.authority import open_authority
from hal.runtime.interface import Connection, TcpAddress
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.tls import RestContext
from tests.runtime.certified import now_ms
from tests.runtime.real_runtime import log_text, run_real


def test_a_disk_without_room_when_certificates_are_due_ends_no_controller(tmp_path: Path) -> None:
    """Here a file lies where their directory was: the log says so, and it is tried again later."""
    authority = open_authority(tmp_path / "authority", now_ms())
    authority.certify_rest(["localhost"], now_ms())
    authority.certify_controller("controller", now_ms())
    tls = RestContext(authority.rest_file, None)

    async def nobody(connection: Connection) -> None:
        connection.close()

    async def main(runtime: RealRuntime) -> None:
        listener = await runtime.listen(TcpAddress("127.0.0.1", 0), nobody, authority.credentials)
        (tmp_path / "authority").rename(tmp_path / "away")
        (tmp_path / "authority").touch()
        RestCertificate(runtime, authority, ["localhost"], authority.rest_file, tls, due_ms=0)
        port = CertifiedPort(runtime, authority, listener, due_ms=0)
        while (log := log_text(tmp_path)).count("was not renewed") < 2:
            await runtime.sleep(10)
        assert "the certificate of REST was not renewed" in log
        assert "the controller's certificate was not renewed" in log
        await port.close()

    run_real(tmp_path, main)
