"""Dask on a session: graphs of its collections, and futures in the way of its client."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask")

import dask
import dask.array
import dask.bag

from hal.client.session import Session
from hal.client.sessions.dask_client import Client
from tests.client.sessions.processes import Processes, processes

EXAMPLE = Path(__file__).parents[3] / "examples" / "sessions" / "dask_tree.py"


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


@pytest.fixture
def client(session: Session) -> Client:
    return Client(session, slots=2)


def test_delayed_calls_are_computed_elsewhere(client: Client) -> None:
    """A tree of sums, of 127 tasks."""
    layer = [dask.delayed(abs)(-number) for number in range(64)]
    while len(layer) > 1:
        layer = [dask.delayed(operator.add)(left, right) for left, right in zip(layer[::2], layer[1::2], strict=True)]
    assert layer[0].compute(scheduler=client.get, optimize_graph=False) == sum(range(64))
    assert dask.delayed(os.getpid, pure=False)().compute(scheduler=client.get) != os.getpid()


def test_arrays_are_computed(client: Client) -> None:
    """As NumPy does it: blocks travel between the tasks."""
    whole = np.arange(40_000.0).reshape(200, 200)
    blocks = dask.array.from_array(whole, chunks=(50, 100))
    (product, column_sums) = dask.compute(blocks @ blocks.T, blocks.sum(axis=0), scheduler=client.get)
    np.testing.assert_allclose(product, whole @ whole.T)
    np.testing.assert_allclose(column_sums, whole.sum(axis=0))


def test_bags_are_computed(client: Client) -> None:
    """With lambdas, and a fold."""
    bag = dask.bag.from_sequence(range(1_000), npartitions=10)
    with dask.config.set(scheduler=client.get):
        odd = bag.filter(lambda one: one % 2).map(lambda one: one * one)
        assert odd.sum().compute() == sum(one * one for one in range(1, 1_000, 2))
        assert dict(bag.frequencies(sort=False).map(lambda pair: (pair[0] % 3, 1)).compute()) == {0: 1, 1: 1, 2: 1}


def test_the_exception_of_a_task_is_raised(client: Client) -> None:
    """And the next graph is computed."""
    broken = dask.delayed(operator.truediv)(1, dask.delayed(int)("0"))
    with pytest.raises(ZeroDivisionError):
        broken.compute(scheduler=client.get)
    assert dask.delayed(int)("7").compute(scheduler=client.get) == 7


def test_futures_are_gathered(client: Client) -> None:
    """In the form in which they were given; what is scattered is sent once."""
    futures = client.map(pow, [2, 3], [5, 2])
    assert client.gather(futures) == [32, 9]
    nested = {"one": client.submit(abs, -1), "more": (client.submit(int, "ff", base=16), "plain")}
    assert client.gather(nested) == {"one": 1, "more": (255, "plain")}
    table = client.scatter(list(range(1_000)))
    assert client.gather(client.map(operator.getitem, [table] * 3, [1, 10, 100])) == [1, 10, 100]
    with pytest.raises(ZeroDivisionError):
        client.gather([client.submit(abs, 1), client.submit(operator.truediv, 1, 0)])


def test_the_example(running: Processes) -> None:
    """It prints a mean."""
    run = subprocess.run([sys.executable, str(EXAMPLE), str(running.file)], capture_output=True, text=True, check=True)
    assert run.stdout == "499999.5\n"
