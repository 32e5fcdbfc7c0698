"""`hal simulate --topology`: nodes in the domains of a file, placements compared there, jobs within one domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hal.cli.main import main

SITE = """
levels = ["row", "rack"]
[nodes]
"n[1-2]" = "a/r1"
"n[3-4]" = "a/r2"
x = "b"
"""
# submit run processors: on nodes of one processor, the first holds n1 while the second wants two, then the third two.
JOBS = ((0, 100, 1), (1, 50, 2), (2, 10, 2), (200, 10, 3))


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "four.swf"
    lines = [
        f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {run} -1 1 1 -1 -1 -1 -1 -1 -1"
        for number, (submit, run, procs) in enumerate(JOBS, 1)
    ]
    path.write_text("\n".join(["; MaxProcs: 5", *lines]) + "\n")
    return str(path)


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    return str(path)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    assert main(["simulate", "--json", *arguments]) == 0
    return {one["policy"]: one for one in json.loads(capsys.readouterr().out)}


def test_placements_are_compared_by_how_many_domains_gangs_are_on(
    capsys: pytest.CaptureFixture[str], log: str, site: str
) -> None:
    """Compact: n3 and n4; then n2 and x, of no rack; then three nodes of five. First-fit: n2 and n3, and n4 and x. The
    last job, alone, has n1 to n3 either way or another three of the row a: two racks."""
    both = figures(
        capsys, log, "--topology", site, "--cpus-per-node", "1", "--policy", "easy", "--placement", "compact,first-fit"
    )
    assert list(both) == ["easy-compact", "easy-first-fit"]
    assert {name: one["gangs"]["starts"] for name, one in both.items()} == {"easy-compact": 3, "easy-first-fit": 3}
    assert both["easy-compact"]["gangs"]["mean_domains"]["rack"] == pytest.approx(5 / 3)
    assert both["easy-first-fit"]["gangs"]["mean_domains"]["rack"] == pytest.approx(6 / 3)
    assert [one["mean_wait_s"] for one in both.values()] == [0, 0]
    assert (both["easy-compact"]["nodes"], both["easy-compact"]["decides"]) == (
        5,
        "order fcfs, backfill easy, compact",
    )


def test_spread_over_racks_gangs_are_on_more_of_them_and_wait_no_longer(
    capsys: pytest.CaptureFixture[str], log: str, site: str
) -> None:
    """Each of the three gangs of two and three nodes is on as many racks as have a node free."""
    common = (log, "--topology", site, "--cpus-per-node", "1", "--policy", "easy", "--check")
    (compact,) = figures(capsys, *common).values()
    (spread,) = figures(capsys, *common, "--spread", "rack").values()
    assert spread["gangs"]["mean_domains"]["rack"] > compact["gangs"]["mean_domains"]["rack"]
    assert (spread["mean_wait_s"], spread["gangs"]["starts"]) == (compact["mean_wait_s"], 3)


def test_within_a_level_jobs_wait_for_one_domain_and_larger_ones_are_left_out(
    capsys: pytest.CaptureFixture[str], log: str, site: str
) -> None:
    """The third job waits from 2 until 51, when the second leaves its rack; three nodes are more than a rack has."""
    (one,) = figures(
        capsys, log, "--topology", site, "--cpus-per-node", "1", "--policy", "easy", "--within", "rack"
    ).values()
    assert one["skipped_reasons"] == {"more processors than the largest rack": 1}
    assert one["gangs"] == {"starts": 2, "mean_domains": {"row": 1.0, "rack": 1.0}}
    assert one["max_wait_s"] == 49


def test_a_job_that_is_packed_waits_for_one_domain_for_its_time_and_then_starts_anywhere(
    capsys: pytest.CaptureFixture[str], log: str, site: str
) -> None:
    """The third job gives up at 2 + 20 s, when it would have waited for 49; the largest, of three nodes, is left in and
    waits as long. With more time than any job needs, those that a rack holds start as within it."""
    common = (log, "--topology", site, "--cpus-per-node", "1", "--policy", "easy", "--check")
    (short,) = figures(capsys, *common, "--pack", "rack:20s").values()
    assert (short["skipped"], short["max_wait_s"], short["gangs"]["starts"]) == (0, 20, 3)
    (long,) = figures(capsys, *common, "--pack", "rack:49s").values()
    assert (long["gangs"]["starts"], long["max_wait_s"]) == (3, 49)


def test_whole_policies_are_compared_on_the_same_nodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: str, site: str
) -> None:
    """A hal.toml says itself whether it is compact; --placement compares both."""
    config = tmp_path / "hal.toml"
    config.write_text("[topology]\ncompact = false\n")
    common = (log, "--topology", site, "--cpus-per-node", "1", "--config", str(config))
    (alone,) = figures(capsys, *common).values()
    assert alone["gangs"]["mean_domains"]["rack"] == pytest.approx(6 / 3)
    both = figures(capsys, *common, "--placement", "first-fit,compact")
    assert [one["gangs"]["mean_domains"]["rack"] for one in both.values()] == pytest.approx([6 / 3, 5 / 3])
    assert list(both) == ["hal-first-fit", "hal-compact"]


def test_tables_show_the_domains_of_gangs(capsys: pytest.CaptureFixture[str], log: str, site: str) -> None:
    """A row for each level, below the other figures."""
    assert main(["simulate", log, "--topology", site, "--cpus-per-node", "1", "--policy", "easy"]) == 0
    out = capsys.readouterr().out
    assert "rack domains of a gang" in out
    assert "row domains of a gang" in out


def test_slurms_file_is_read_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path, log: str) -> None:
    """Its leaf switches are the level `switch`."""
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-5]\n")
    (one,) = figures(capsys, log, "--topology", str(path), "--cpus-per-node", "1", "--policy", "fcfs").values()
    assert list(one["gangs"]["mean_domains"]) == ["switch"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--within", "rack"), "--within needs --topology"),
        (("--spread", "rack"), "--spread needs --topology"),
        (("--placement", "compact"), "--placement needs --topology"),
        (("--pack", "rack:5m"), "--pack needs --topology"),
        (("--topology", "SITE", "--cpus-per-node", "1", "--pack", "rack"), "pack: 'rack' says no time"),
        (("--topology", "SITE", "--cpus-per-node", "1", "--pack", "rack:5ms"), "pack: 'rack:5ms' has no whole seconds"),
        (
            ("--topology", "SITE", "--cpus-per-node", "1", "--pack", "rack:5m", "--within", "rack"),
            "--pack and --within cannot be combined",
        ),
        (("--topology", "SITE"), "--topology needs --cpus-per-node"),
        (("--topology", "SITE", "--cpus-per-node", "1", "--nodes", "4"), "--nodes and --topology cannot be combined"),
        (("--topology", "SITE", "--cpus-per-node", "1", "--placement", "tight"), "unknown placement 'tight'"),
        (("--topology", "SITE", "--cpus-per-node", "1", "--within", "rak"), "there is no level 'rak'"),
    ],
)
def test_what_does_not_go_together_is_one_error(
    capsys: pytest.CaptureFixture[str], log: str, site: str, arguments: tuple[str, ...], message: str
) -> None:
    """Before anything is replayed."""
    assert main(["simulate", log, *(site if one == "SITE" else one for one in arguments)]) != 0
    assert message in capsys.readouterr().err
