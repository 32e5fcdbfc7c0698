"""What a node is told: its command line, and `[node]` of hal.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.core.model import SpecError
from hal.daemons.agent.arguments import parse_arguments
from hal.daemons.agent.node_file import read_node_section


def test_an_agent_and_its_keeper_say_the_same_to_each_other(tmp_path: Path) -> None:
    """What was said or found out is said again word by word."""
    words = ["--home", str(tmp_path), "--node", "n1", "--label", "disk=fast", "--domain", "/dc1/rack3/"]
    first = parse_arguments("hal-keeper", [*words, "--resource", "gpu=2000", "--no-agent"])
    assert (first.domain, first.capacity["gpu"], first.labels) == ("dc1/rack3", 2_000, {"disk": "fast"})
    assert parse_arguments("hal-agent", first.words()) == first


def test_slices_are_offered_by_type(tmp_path: Path) -> None:
    """Of a machine with a whole GPU and one in MIG mode; of the second alone; none where GPUs are given by hand."""
    slices = "".join(f'[[node.gpus.slices]]\ntype = "1g.10gb"\nuuid = "MIG-{at}"\n' for at in range(2))
    (tmp_path / "hal.toml").write_text(f"[[node.gpus]]\n[[node.gpus]]\n{slices}")

    def gpus(*words: str) -> dict[str, int]:
        found = parse_arguments("hal-agent", ["--home", str(tmp_path), "--node", "n1", *words])
        return {name: amount for name, amount in found.capacity.items() if name not in ("cpu", "memory")}

    assert gpus() == {"gpu": 1_000, "mig-1g.10gb": 2}
    assert gpus("--gpu", "1") == {"mig-1g.10gb": 2}
    assert gpus("--resource", "gpu=1000") == {"gpu": 1_000}


@pytest.mark.parametrize("words", [["--label", "hal.node=other"], ["--domain", "a b"]])
def test_bad_words_end_the_process(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and which word it was."""
    with pytest.raises(SystemExit) as ended:
        parse_arguments("hal-agent", ["--home", str(tmp_path), "--node", "n1", *words])
    assert ended.value.code == 2
    assert words[1].partition("=")[0] in capsys.readouterr().err


def test_the_section_of_the_node_is_read_beside_everything_else(tmp_path: Path) -> None:
    """The rest of the file is the controller's."""
    path = tmp_path / "hal.toml"
    assert read_node_section(path).labels == {}
    path.write_text('[engine]\norder = "sjf"\n')
    assert read_node_section(path).domain == ""
    path.write_text('[engine]\norder = "sjf"\n[node]\ndomain = "dc1"\nlabels = { disk = "fast" }\n')
    section = read_node_section(path)
    assert (section.domain, section.labels) == ("dc1", {"disk": "fast"})


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[node]\nlabel = {}\n", "unknown field 'label' in node; did you mean 'labels'"),
        ("[node]\nlabels = { a = 1 }\n", "node.labels.*: expected text, got a number"),
        ("[node", "not TOML"),
        ('[node.health]\ndisk_free = "much"\n', "node.health.disk_free"),
        ('[node.health]\nevery = "1ms"\n', "node.health.every: too often"),
        ('[node.checks.disk]\ncommand = ["/bin/true"]\n', "node.checks.disk: no name for a check"),
        ('[node]\nprolog = ["prolog"]\n', "node.prolog: the first word must be the absolute path"),
        ('[node]\nprolog = "/etc/hal/prolog"\n', "node.prolog: expected a list, got text"),
        ('[node]\nepilog = ["/a", "b\\u0000c"]\n', "node.epilog: no command line"),
        ('[node]\nepilog_timeout = "2d"\n', r"node.epilog_timeout: 2d is out of range \(between 1ms and 1d\)"),
        ('[node]\nprolog_timeout = "0s"\n', "node.prolog_timeout: 0s is out of range"),
        ('[node.checks.x]\ncommand = ["true"]\n', "absolute path"),
        ('[node.checks.x]\ncommand = ["/x"]\ntimeout = "2h"\n', "node.checks.x.timeout: 2h is out of range"),
        ('[node.checks.x]\ncommand = ["/x"]\nfailures = 0\n', "node.checks.x.failures: 0 is out of range"),
        ('[node]\ndomain = "a b"\n', "'a b' is not a valid name"),
    ],
)
def test_a_section_that_makes_no_sense_is_one_error(text: str, match: str, tmp_path: Path) -> None:
    """It names the file and the field."""
    path = tmp_path / "hal.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=match) as told:
        read_node_section(path)
    assert "hal.toml" in str(told.value)
