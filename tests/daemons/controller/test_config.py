"""hal.toml: what is declared holds; a mistake is one error that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hal.core.engine.config import Backfill
from hal.core.model import SpecError
from hal.daemons.controller.config import Config, read_config, with_addresses


def test_an_empty_file_gives_the_default_queue_and_no_tcp() -> None:
    """Nothing need be written."""
    config = read_config("")
    assert (list(config.policy.queues), config.tcp, config.engine.backfill) == (["default"], None, Backfill.EASY)
    assert config == Config()


def test_queues_names_and_policies_are_read() -> None:
    """Beside `default`, which always exists."""
    config = read_config(
        'users = ["a"]\n[engine]\nbackfill = "conservative"\nreservations = 3\nfilters = ["f"]\n'
        '[queues.short]\nmax_walltime = "15m"\n[server]\ntcp = "8642"'
    )
    assert config.policy.queues["short"].max_walltime == 900_000
    assert (config.engine.backfill, config.engine.filters) == (Backfill.CONSERVATIVE, ("f",))
    assert (set(config.policy.queues), config.policy.users, config.tcp) == (
        {"default", "short"},
        ("a",),
        ("127.0.0.1", 8642),
    )
    assert (config.engine.backfill, config.engine.reservations) == (Backfill.CONSERVATIVE, 3)
    moved = with_addresses(config, "[::1]:99", "0.0.0.0:7422")
    assert (moved.tcp, moved.wire) == (("::1", 99), ("0.0.0.0", 7422))
    assert with_addresses(config, "", "") == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[queue.x]", "did you mean 'queues'"),
        ("[queues.x]\nmax_wall = 1", "max_walltime"),
        ("[engine]\nbackfill = 'most'", "engine.backfill"),
        ("[engine]\nslice_work = 0", "engine.slice_work"),
        ("[server]\ntcp = 'localhost'", "server.tcp"),
        ("[server]\nmax_request_bytes = 1", "max_request_bytes"),
        ("[queues.x]\non_node_lost = 'explode'", "on_node_lost"),
        ("[leases]\nnode = '1s'", "leases.node: 1s is less than 3 heartbeats of 2s"),
        ("[leases]\nkill = '1ms'", "leases.kill: 1ms is out of range"),
        ("[leases]\nnodes = '1m'", "did you mean 'node'"),
        ("[queues.x]\ndefault_walltime = '2h'\nmax_walltime = '1h'", "queues.x"),
        ("= 1", "not TOML"),
    ],
)
def test_a_mistake_is_named(text: str, says: str) -> None:
    """The start is refused with the field or section in the message."""
    with pytest.raises(SpecError, match=r"^hal\.toml: ") as caught:
        read_config(text)
    assert says in str(caught.value)


def test_the_file_of_the_manual_is_read() -> None:
    """docs/config.md shows a file that starts a controller."""
    page = (Path(__file__).parents[3] / "docs" / "config.md").read_text()
    (shown,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    config = read_config(shown)
    assert set(config.policy.queues) == {"default", "short"}
    assert config.policy.bookings["upkeep"].start_ms == 1_894_003_200_000


def test_rest_goes_over_a_network_as_plain_text_only_where_somebody_said_so() -> None:
    """Loopback is fine in every spelling; another address needs `plain_tcp`, also when it comes from `--listen`."""
    for host in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "1"):
        assert with_addresses(Config(), host, "").tcp is not None
    for host in ("0.0.0.0:1", "192.0.2.1:1", "[::]:1", "example.org:1"):
        with pytest.raises(SpecError, match="plain text"):
            with_addresses(Config(), host, "")
        with pytest.raises(SpecError, match="plain text"):
            with_addresses(read_config(f'[server]\ntcp = "{host}"\n'), "", "")
        assert with_addresses(Config(plain_tcp=True), host, "").tcp is not None
