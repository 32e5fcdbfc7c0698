"""Which ports a keeper gives to the steps of services."""

from __future__ import annotations

import socket

from hal.core.model import StepId
from hal.daemons.agent.keeper.environment import port_env
from hal.daemons.agent.keeper.service_ports import FIRST_PORT, MAX_TRIES, PORTS, ServicePorts, is_port_free
from hal.wire.frames.agent_keeper import StepStart, StepTemplate, TemplateService

TWO = TemplateService((("http", 0), ("grpc-web", 0)))


def nobody(port: int) -> bool:
    return False


def test_every_port_of_a_step_is_its_own_and_of_the_range() -> None:
    chosen = ServicePorts("n1", lambda port: True).choose(TWO, nobody)
    assert chosen is not None
    assert len(set(chosen)) == 2
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in chosen)


def test_a_port_that_was_given_back_is_the_last_that_is_given_again() -> None:
    """Nobody who still speaks to the former step meets the next one."""
    ports = ServicePorts("n1", lambda port: True)
    given = [ports.choose(TemplateService((("http", 0),)), nobody) for _ in range(PORTS)]
    assert len(set(given)) == PORTS


def test_a_port_at_which_somebody_listens_or_that_a_step_has_is_not_given() -> None:
    probe = ServicePorts("n1", lambda port: True).choose(TWO, nobody)
    assert probe is not None
    taken, listening = probe
    chosen = ServicePorts("n1", lambda port: port != listening).choose(TWO, lambda port: port == taken)
    assert chosen is not None
    assert not {taken, listening} & set(chosen)


def test_a_number_that_a_job_names_is_kept() -> None:
    chosen = ServicePorts("n1", lambda port: True).choose(TemplateService((("a", 0), ("b", 9_000))), nobody)
    assert chosen is not None
    assert chosen[1] == 9_000


def test_a_machine_without_a_free_port_gives_none_after_a_bounded_search() -> None:
    asked: list[int] = []
    assert ServicePorts("n1", lambda port: bool(asked.append(port))).choose(TWO, nobody) is None
    assert len(asked) == MAX_TRIES


def test_nodes_of_one_machine_begin_at_different_ports() -> None:
    """Each keeper knows only its own steps."""
    first = [ServicePorts(node, lambda port: True).choose(TWO, nobody) for node in ("n1", "n2", "n3")]
    assert len(set(first)) == 3


def test_a_port_at_which_somebody_listens_is_not_free_whatever_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_port_free(port)
    assert is_port_free(port)


def test_a_step_sees_its_ports_by_name() -> None:
    start = StepStart(StepId(1, 0, 1, 0), 0, "", ("n1",), 0, 1, 0, ports=(20_000, 20_001))
    assert port_env(start, StepTemplate(service=TWO)) == {"HAL_PORT_HTTP": "20000", "HAL_PORT_GRPC_WEB": "20001"}


def test_the_only_port_of_a_step_needs_no_name() -> None:
    start = StepStart(StepId(1, 0, 1, 0), 0, "", ("n1",), 0, 1, 0, ports=(20_000,))
    template = StepTemplate(service=TemplateService((("http", 0),)))
    assert port_env(start, template) == {"HAL_PORT": "20000", "HAL_PORT_HTTP": "20000"}


def test_a_step_of_another_job_sees_none() -> None:
    start = StepStart(StepId(1, 0, 1, 0), 0, "", ("n1",), 0, 1, 0)
    assert port_env(start, StepTemplate()) == {}
