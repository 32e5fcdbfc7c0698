"""Synthetic logs: the load asked for, limits people would type, users, and the same bytes for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model.errors import SpecError
from hal.daemons.twin.lublin import DAY_S
from hal.daemons.twin.swf import read_log, usable_jobs
from hal.daemons.twin.workload import LIMITS_S, WorkloadSpec, generate, offered_load, write_swf


def spec(**changes: object) -> WorkloadSpec:
    values = {"jobs": 3000, "cpus": 256, "load": 0.8, "seed": 1, "users": 50} | changes
    return WorkloadSpec(**values)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    """The log is a function of its parameters."""
    texts = [write_swf(generate(spec(seed=seed)), spec(seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@given(
    jobs=st.integers(50, 400), cpus=st.integers(1, 2000), load=st.floats(0.05, 2.0), seed=st.integers(0, 1 << 32)
)  # fmt: skip
def test_the_offered_load_is_the_one_asked_for(jobs: int, cpus: int, load: float, seed: int) -> None:
    """Within what rounding two submits to whole seconds can change."""
    made = generate(spec(jobs=jobs, cpus=cpus, load=load, seed=seed))
    span_s = int(made.submit_s[-1] - made.submit_s[0])
    assert offered_load(made.submit_s, made.run_s, made.procs, cpus) == pytest.approx(load, rel=2 / span_s)


def test_a_day_keeps_its_24_hours_at_any_load() -> None:
    """More jobs are submitted from 9 to 18 o'clock than in the other 15 hours, at a low and at a high load."""
    for load in (0.2, 2.0):
        made = generate(spec(jobs=20_000, load=load))
        hour = made.submit_s % DAY_S / 3600
        assert ((hour >= 9) & (hour < 18)).mean() > 0.5


def test_limits_are_round_and_never_cut_a_run() -> None:
    """Every limit is one that people type, at least the run, and on average runs use well under half of it."""
    made = generate(spec())
    assert np.isin(made.limit_s, LIMITS_S).all()
    assert (made.limit_s >= made.run_s).all()
    assert (made.run_s / made.limit_s).mean() < 0.5


def test_a_few_users_submit_most_of_the_jobs() -> None:
    """By Zipf's law over 50 users the first submits 1 / H(50) = 22 % and the first ten 65 %."""
    users = np.bincount(generate(spec(jobs=20_000)).user, minlength=51)[1:] / 20_000
    assert users[0] == pytest.approx(0.222, abs=0.02)
    assert users[:10].sum() == pytest.approx(0.651, abs=0.02)
    assert users.size == 50


@given(jobs=st.integers(1, 60), cpus=st.integers(1, 300), seed=st.integers(0, 1 << 64))
def test_what_is_written_is_read_back_whole(jobs: int, cpus: int, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:  # fmt: skip  # noqa: E501
    """Every line is a usable job with the values generated, on the machine named in the header."""
    asked = spec(jobs=jobs, cpus=cpus, seed=seed)
    made = generate(asked)
    path: Path = tmp_path_factory.getbasetemp() / "made.swf"
    path.write_bytes(write_swf(made, asked))
    log = read_log(path)
    read = usable_jobs(log, log.machine_procs or 0)
    assert (log.machine_procs, log.bad_lines, read.skipped) == (cpus, 0, {})
    for column in ("submit_s", "run_s", "limit_s", "procs", "user"):
        assert getattr(read, column).tolist() == getattr(made, column).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobs": 0}, "jobs is 0"),
        ({"cpus": 0}, "cpus is 0"),
        ({"users": 0}, "users is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"load": 0.0}, "load is 0.0"),
        ({"load": float("nan")}, "load is nan"),
        ({"kind": "gpu"}, "unknown kind of jobs 'gpu'"),
    ],
)
def test_a_value_out_of_range_is_named(changes: dict[str, object], message: str) -> None:
    """And nothing is generated."""
    with pytest.raises(SpecError, match=message):
        spec(**changes)
