"""`hal workload generate`: what it writes, where, and what it says about values out of range."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hal.cli.main import main


def generate(*arguments: str) -> int:
    return main(["workload", "generate", "--jobs", "50", "--cpus", "16", *arguments])


def test_the_log_goes_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Header comments, then 50 job lines of 18 columns, and nothing else."""
    assert generate() == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    jobs = [line for line in lines if not line.startswith(";")]
    assert len(jobs) == 50
    assert {len(line.split()) for line in jobs} == {18}
    assert "; MaxProcs: 16" in lines


def test_the_same_seed_writes_the_same_file_also_compressed(tmp_path: Path) -> None:
    """Byte for byte; the compressed file holds the plain one."""
    names = ["a.swf", "b.swf", "c.swf.gz", "d.swf.gz"]
    for name in names:
        assert generate("--seed", "5", "-o", str(tmp_path / name)) == 0
    a, b, c, d = (tmp_path.joinpath(name).read_bytes() for name in names)
    assert a == b == gzip.decompress(c)
    assert c == d


def test_another_seed_writes_another_log(tmp_path: Path) -> None:
    """Seeds 1 and 2."""
    for seed in ("1", "2"):
        assert generate("--seed", seed, "--output", str(tmp_path / seed)) == 0
    assert (tmp_path / "1").read_bytes() != (tmp_path / "2").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--load", "0"], "load is 0.0"),
        (["--load", "nan"], "load is nan"),
        (["--jobs", "0"], "--jobs"),
        (["--cpus", "-4"], "--cpus"),
        (["--seed", "x"], "--seed"),
        (["--model", "guess"], "--model"),
        (["--output", "/nowhere/at/all.swf"], "directory /nowhere/at does not exist"),
        (["--output", "/"], "is a directory"),
    ],
)
def test_a_wrong_value_ends_with_code_2_and_names_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """One line of error, nothing on standard output."""
    assert generate(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
