"""What a job says that serves others: forms that people write, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.model import JobSpec, Restart, SpecError, from_json, spec_from_plain, to_json
from hal.core.model.job import check_spec
from hal.core.model.service import DEFAULT_RESTARTS, ProbeKind, parse_port, parse_probe, port_variable


def service(raw: Any, **fields: Any) -> JobSpec:
    return spec_from_plain({"command": ["serve"], "service": raw, **fields})


def test_a_service_that_says_nothing_is_restarted_always_five_times_within_ten_minutes() -> None:
    spec = service(True)
    assert spec.service is not None
    assert (spec.service.restart, spec.retries.max, str(spec.service.window)) == (
        Restart.ALWAYS,
        DEFAULT_RESTARTS,
        "10m",
    )


def test_ports_and_a_probe_are_written_as_text_too() -> None:
    """The same as tables."""
    short = service({"ports": ["http", "admin=9000"], "readiness": "http:admin/healthz"})
    long = service({"ports": {"http": 0, "admin": 9000}, "readiness": {"http": "/healthz", "port": "admin"}})
    assert short == long
    assert short.service is not None
    assert short.service.readiness is not None
    assert short.service.readiness.kind is ProbeKind.HTTP


def test_a_checked_service_is_stored_and_read_as_the_same() -> None:
    """Defaults that are written out give the same bytes as those that are not."""
    spec = service({"ports": {"http": 0}, "readiness": {"tcp": True, "interval": "10s"}, "restart": "on-failure"})
    assert to_json(spec) == to_json(
        service({"ports": ["http"], "readiness": "tcp", "restart": "on-failure", "window": "10m"}, retries=5)
    )
    assert check_spec(from_json(to_json(spec), JobSpec)) == spec


@pytest.mark.parametrize(("raw", "complaint"), [
    ({"ports": ["80=80"]}, "service.ports: '80' is not the name of a port"),
    ({"ports": {"web": 80}}, "service.ports.web: 80 belongs to root"),
    ({"ports": ["a-b", "a_b"]}, "differ only in - and _"),
    ({"ports": ["web", "web"]}, "a name is given twice"),
    ({"ports": ["web=x"]}, "is not NAME or NAME=NUMBER"),
    ({"ports": [f"p{n}" for n in range(17)]}, "service.ports: 17; at most 16"),
    ({"readiness": "tcp"}, "which port is asked. The service has 0"),
    ({"ports": ["a", "b"], "readiness": "tcp"}, "which port is asked. The service has 2"),
    ({"ports": ["a"], "readiness": "tcp:b"}, "the service has no port 'b'"),
    ({"ports": ["a"], "readiness": {}}, "none of http, tcp and command given"),
    ({"ports": ["a"], "readiness": {"tcp": True, "http": "/"}}, "http and tcp given"),
    ({"readiness": {"command": ["x"], "port": "a"}}, "a command is asked at no port"),
    ({"readiness": {"command": [""]}}, "the program's name is empty"),
    ({"readiness": {"command": ["x" * 5_000]}}, "or 4096 bytes together"),
    ({"ports": ["a"], "readiness": {"http": "healthz"}}, "'healthz' is no path"),
    ({"ports": ["a"], "readiness": {"http": "/a b\r\nX: y"}}, "a path is ASCII without spaces"),
    ({"ports": ["a"], "readiness": {"tcp": True, "interval": "10ms"}}, "service.readiness.interval: 10ms is out of"),
    ({"ports": ["a"], "readiness": {"tcp": True, "timeout": "2h"}}, "service.readiness.timeout: 2h is out of range"),
    ({"readiness": "ping"}, "'ping' is no probe"),
    ({"window": "0s"}, "service.window"),
    ({"restarts": "always"}, "restarts"),
    ("yes", "service"),
])  # fmt: skip
def test_what_is_no_service_is_refused_by_name(raw: object, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        service(raw)


@pytest.mark.parametrize(("fields", "complaint"), [
    ({"interactive": "pipes"}, "service: people attach"),
    ({"sandbox": "no-network"}, "nobody reaches a task with no-network"),
])  # fmt: skip
def test_what_does_not_go_with_a_service_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        service({"ports": ["web"]}, **fields)


def test_a_service_that_is_never_restarted_has_no_retries() -> None:
    with pytest.raises(SpecError, match="retries: the service is restarted never"):
        service({"restart": "never"}, retries=1)


def test_ports_are_in_the_order_in_which_they_are_stored() -> None:
    """Nodes report numbers in that order, to a controller that has read the spec from the store too."""
    spec = service({"ports": ["web", "admin"]})
    assert spec.service is not None
    assert list(spec.service.ports) == ["admin", "web"]
    assert to_json(spec) == to_json(from_json(to_json(spec), JobSpec))


def test_ports_and_probes_are_parsed_from_text() -> None:
    assert [parse_port("web"), parse_port("web=8080")] == [("web", 0), ("web", 8080)]
    assert parse_probe("http:/a/b") == {"http": "/a/b"}
    assert parse_probe("command:test -e x") == {"command": ["/bin/sh", "-c", "test -e x"]}


def test_a_port_is_seen_in_a_variable_of_its_name() -> None:
    assert port_variable("grpc-web") == "HAL_PORT_GRPC_WEB"
