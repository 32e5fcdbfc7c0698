"""hal.toml: what is declared holds; a mistake is one error that names it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.core.engine.config import Backfill
from hal.core.model import SpecError
from hal.core.model.config_sections import settings_of
from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.tree import topology_of_labels
from hal.daemons.controller.config import (
    Config,
    reached,
    read_config,
    rest_url,
    serves_tls,
    with_addresses,
    with_topology,
)
from hal.daemons.controller.config_sections import SECTIONS
from hal.store import Retention


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


def test_what_is_left_to_gpus_is_read_in_the_units_that_people_write() -> None:
    """Two cores and 16 GiB for each."""
    engine = read_config('[engine]\ngpu_reserve = { cpu = 2, memory = "16GiB" }').engine
    assert engine.gpu_reserve == {"cpu": 2_000, "memory": 16 << 30}


def test_retention_is_read_and_a_queue_takes_from_it_what_it_does_not_set() -> None:
    """0 is no limit; days are milliseconds."""
    retention = read_config(
        "[retention]\njobs_days = 10\njobs_count = 0\nevents_days = 2\n[retention.queues.short]\njobs_days = 1\n"
    ).retention
    day_ms = 86_400_000
    assert (retention.jobs.jobs_ms, retention.events_ms) == (10 * day_ms, 2 * day_ms)
    assert retention.jobs.jobs_count > 10**9
    assert retention.of("short") == replace(retention.jobs, jobs_ms=day_ms)
    assert retention.of("default") == retention.jobs
    assert read_config("[retention]\n").retention == Retention()


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
        ("[retention]\njobs_days = -1", "retention.jobs_days: -1 is out of range (between 0 (no limit) and 36500"),
        ("[retention]\nevents_count = -1", "retention.events_count: -1 is out of range"),
        ("[retention.queues.x]\noutputs_days = 99999", "retention.queues.x.outputs_days: 99999 is out of range"),
        ("[readers]\ndays = 1000000000000000", "readers.days: 1000000000000000 is out of range"),
        ("[engine]\ngpu_reserve = {gpu = 1}", "engine.gpu_reserve: gpu cannot be reserved for GPUs"),
        ("[engine]\nreservations = 99999999999999999999", "engine.reservations: 99999999999999999999 is out of range"),
        ("[server]\nnode_certificate = '1s'", "server.node_certificate: 1s is out of range (between 10s and 825d"),
        ("[retention]\nattempts_per_task = 9", "retention.attempts_per_task: 9 is out of range (between 10 and"),
        ("[retention.queues.x]\noutput_days = 9", "did you mean 'outputs_days'"),
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


def test_the_manual_shows_every_setting_and_no_other() -> None:
    """Each key that is declared stands in the file of docs/config.md, with its help in spec/config.md."""
    page = (Path(__file__).parents[3] / "docs" / "config.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = tomllib.loads(text)
    for section in SECTIONS:
        for setting in settings_of(section):
            assert setting.help, f"{section.name}.{setting.key} has no help"
            inside = shown[section.name]
            for name in setting.key.split("."):
                if name == "NAME":
                    inside = next(iter(inside.values()))
                else:
                    inside = inside[name[:-2]][0] if name.endswith("[]") else inside[name]


def test_rest_goes_over_a_network_as_plain_text_only_where_somebody_said_so() -> None:
    """Loopback is plain in every spelling unless TLS is asked for; any other address is TLS unless `plain_tcp` says."""
    for host in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "1"):
        assert not serves_tls(with_addresses(Config(), host, ""))
        assert serves_tls(with_addresses(read_config("[server]\ntls = true\n"), host, ""))
        assert serves_tls(with_addresses(read_config('[server]\ntls_cert = "/c"\ntls_key = "/k"\n'), host, ""))
    for host in ("0.0.0.0:1", "192.0.2.1:1", "[::]:1", "example.org:1"):
        assert serves_tls(with_addresses(Config(), host, ""))
        assert serves_tls(read_config(f'[server]\ntcp = "{host}"\n'))
        assert not serves_tls(with_addresses(Config(plain_tcp=True), host, ""))
    assert not serves_tls(Config())


@pytest.mark.parametrize("wrong", ['tls_cert = "/c"', 'tls_cert = "c"\ntls_key = "k"', "tls = true\nplain_tcp = true"])
def test_half_a_certificate_and_contradictions_are_refused(wrong: str) -> None:
    """The error names the fields."""
    with pytest.raises(SpecError, match=r"server\."):
        read_config(f"[server]\n{wrong}\n")


def test_where_others_reach_a_controller_is_told_by_its_address() -> None:
    """What listens everywhere is reached by `server.address`; what listens at one address, there."""
    assert rest_url(read_config('[server]\ntcp = "0.0.0.0:4250"\naddress = "head1"\n')) == "https://head1:4250"
    assert rest_url(read_config('[server]\ntcp = "4250"\naddress = "head1"\n')) == "http://127.0.0.1:4250"
    assert rest_url(read_config('[server]\ntcp = "0.0.0.0:4250"\n')) == rest_url(Config()) == ""
    assert reached(("::", 7422), "fe80::1") == "[fe80::1]:7422"
    with pytest.raises(SpecError, match=r"server\.address"):
        read_config('[server]\naddress = "head1:4250"\n')


def test_a_topology_of_labels_needs_no_file() -> None:
    """With a file, the levels are names for its own, and the file is read apart."""
    config = read_config('[topology]\nlevels = ["zone", "rack"]')
    assert config.topology == topology_of_labels(["zone", "rack"], "topology.levels")
    named = read_config('[topology]\nfile = "t.toml"\nlevels = ["row"]')
    assert named.topology is None
    read = with_topology(named, lambda file: topology_from_text('levels = ["a"]\n[nodes]\nn1 = "x"', file))
    assert read.topology is not None
    assert (read.topology.levels, read.topology.domains_of("n1", {})) == (("row",), ("x",))


def test_no_topology_is_none() -> None:
    """Nothing is read, and nothing kept."""
    assert with_topology(read_config("[topology]"), pytest.fail).topology is None
