"""Sessions with several brokers: real processes, one executor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import wait
from operator import add

import pytest

from hal.client.session import Session, SessionLost, current_session, key_state, open_session
from hal.client.sessions.demand import Overseer, Wanted
from hal.client.sessions.questions import ask_numbers, ask_shards
from hal.core.model.errors import SpecError
from hal.runtime.session_file import read_session_file
from tests.client.sessions.processes import WAIT_S, OneGroup, Processes, processes
from tests.e2e.conftest import until

pytestmark = pytest.mark.slow


def where(_value: object = None) -> tuple[str, int]:
    """The broker that this task came from, and its worker's process."""
    return current_session()._file.id.rpartition("-")[2], os.getpid()


def slots(started: Processes) -> list[int]:
    """How many each broker has."""
    return [0 if one is None else one.slots for one in ask_shards(read_session_file(started.file))]


def test_tasks_run_at_all_brokers() -> None:
    """Calls, maps, commands and graphs; the numbers are sums."""
    with processes(4, shards=2) as started, started.open() as session:
        until(lambda: slots(started) == [2, 2], "workers are dealt out one by one")
        assert list(session.map(abs, range(-3_000, 0))) == list(range(3_000, 0, -1))
        shards = Counter(shard for shard, _ in session.map(where, range(1_000)))
        assert shards.keys() == {"0", "1"}
        futures = [session.submit(where) for _ in range(100)]
        assert {future.result()[0] for future in futures} == {"0", "1"}
        row = [session.submit(int, number) for number in range(64)]
        while len(row) > 1:
            row = [session.submit(add, one, other) for one, other in zip(row[::2], row[1::2], strict=True)]
        assert row[0].result() == sum(range(64))
        assert session.command(["true"]).result().exit_code == 0
        numbers = session.numbers(slots=True)
        assert (numbers.slots, numbers.unanswered, len(numbers.each)) == (4, 0, 4)
        assert numbers.done == sum(one.done for one in ask_shards(read_session_file(started.file)) if one is not None)
        assert sum(numbers.ended) == 3_000 + 1_000 + 100 + 127 + 1


def count() -> tuple[str, int]:
    state = key_state()
    state["count"] = state.get("count", 0) + 1
    return where()[0], state["count"]


def test_all_clients_find_the_worker_of_a_key() -> None:
    """Each key is at one broker, whoever submits; keys are at both."""
    with processes(2, shards=2) as started, started.open() as one, started.open() as other:
        found = {}
        for key in map(str, range(16)):
            sessions = [session.options(key=key) for session in (one, other) * 3]
            results = [session.submit(count).result() for session in sessions]
            assert [number for _, number in results] == list(range(1, 7))
            found[key] = {shard for shard, _ in results}
        assert all(len(shards) == 1 for shards in found.values())
        assert set().union(*found.values()) == {"0", "1"}


def test_shared_values_and_large_payloads_are_at_all_brokers() -> None:
    """In arguments and in closures; replaced, too."""
    with processes(2, shards=2) as started, started.open() as session:
        shared = session.put(list(range(1_000)))
        large = session.put(bytes(3 << 20))

        def total(_number: int) -> tuple[int, int, str]:
            return sum(shared), len(large), where()[0]  # type: ignore[call-overload, arg-type]

        results = set(session.map(total, range(600)))
        assert results == {(499_500, 3 << 20, "0"), (499_500, 3 << 20, "1")}
        futures = [session.submit(len, shared) for _ in range(8)]
        assert [future.result() for future in futures] == [1_000] * 8
        session.update(shared, [7])
        futures = [session.submit(len, shared) for _ in range(8)]
        assert [future.result() for future in futures] == [1] * 8
        futures = [session.submit(len, bytes(2 << 20)) for _ in range(4)]
        assert [future.result() for future in futures] == [2 << 20] * 4
        with started.open() as other, pytest.raises(SpecError, match="another session"):
            other.update(type(shared).__mro__[1](3), 4)


def nap(seconds: float) -> tuple[str, int]:
    time.sleep(seconds)
    return where()


def test_slots_without_work_go_where_tasks_wait() -> None:
    """All tasks of one key's broker: the other broker's idle slots come over, and go back for what comes there."""
    with processes(4, shards=2) as started, started.open() as session:
        until(lambda: slots(started) == [2, 2], "all workers are there")
        overseer = Overseer(read_session_file(started.file), [OneGroup(Wanted(4, 4))])
        overseer.begin()
        only = session._on[session._cores[1]]  # type: ignore[attr-defined]
        futures = [only.submit(nap, 0.05) for _ in range(100)]
        until(lambda: slots(started) == [0, 4] or all(future.done() for future in futures), "slots did not move")
        assert {future.result()[0] for future in futures} == {"1"}
        assert len({future.result()[1] for future in futures}) >= 4
        other = session._on[session._cores[0]]  # type: ignore[attr-defined]
        assert other.submit(nap, 0.0).result(WAIT_S)[0] == "0"
        overseer._end_thread()
        overseer._close()


def test_a_lost_broker_fails_its_own_futures_only() -> None:
    """The others' results come; what is submitted afterwards runs, with the workers of the lost one, too."""
    with processes(2, shards=2) as started, started.open() as session:
        until(lambda: slots(started) == [1, 1], "all workers are there")
        begun = [session.submit(nap, 0.5) for _ in range(8)]
        homes = [future._core.shard for future in begun]  # type: ignore[attr-defined]
        assert set(homes) == {0, 1}
        started.others[0].kill()
        wait(begun, WAIT_S)
        for future, shard in zip(begun, homes, strict=True):
            if shard == 1:
                assert isinstance(future.exception(), SessionLost)
            else:
                assert future.result()[0] == "0"
        assert {shard for shard, _ in session.map(where, range(500))} == {"0"}
        assert session.options(key="k").submit(where).result()[0] == "0"
        until(lambda: slots(started) == [2, 0], "its worker did not come over")
        with started.open() as other:
            assert other.submit(pow, 2, 5).result() == 32
        started.broker.kill()
        started.broker.wait(WAIT_S)
        until(lambda: all(core.lost for core in session._cores), "the loss is noticed")
        with pytest.raises(SessionLost):
            session.submit(pow, 2, 2)


def test_a_durable_broker_is_replaced_and_loses_nothing() -> None:
    """Futures of both brokers get their results; a later process finds what it has not received."""
    with processes(2, shards=2, durable=True) as started:
        session = open_session(started.file, client="fit")
        futures = [session.submit(pow, number, 2) for number in range(300)]
        started.replace_shard(1)
        futures += [session.submit(pow, number, 2) for number in range(300, 600)]
        assert [future.result(WAIT_S) for future in futures] == [number**2 for number in range(600)]
        left = [session.submit(nap, 0.2) for _ in range(4)]
        for core in session._cores:
            core.leave()
        assert all(isinstance(future.exception(WAIT_S), SessionLost) for future in left)
        with open_session(started.file, client="fit") as again:
            assert sorted(future.result(WAIT_S)[0] for future in again.recovered) == ["0", "0", "1", "1"]


def test_workers_end_with_the_session() -> None:
    """A client says that it is over: all brokers and workers end, with 0."""
    with processes(3, shards=3) as started:
        with started.open() as session:
            assert session.submit(abs, -1).result() == 1
        assert Overseer(read_session_file(started.file)).end()
        assert [process.wait(WAIT_S) for process in (*started.brokers, *started.workers)] == [0] * 6


def test_brokers_that_nobody_uses_end_with_their_workers() -> None:
    with processes(2, linger_s=1, shards=2) as started:
        started.open().shutdown()
        assert [process.wait(WAIT_S) for process in (*started.brokers, *started.workers)] == [0] * 4


def test_a_worker_leaves_on_sigterm_wherever_it_is() -> None:
    with processes(1, shards=2) as started, started.open() as session:
        until(lambda: slots(started) == [1, 0], "it begins at its own")
        on_other = session._on[session._cores[1]]  # type: ignore[attr-defined]
        overseer = Overseer(read_session_file(started.file), [OneGroup(Wanted(1, 1))])
        overseer.begin()
        assert on_other.submit(where).result(WAIT_S)[0] == "1"
        overseer._end_thread()
        overseer._close()
        started.workers[0].send_signal(signal.SIGTERM)
        assert started.workers[0].wait(WAIT_S) == 75
        until(lambda: ask_numbers(read_session_file(started.file)).slots == 0, "it has left")


def test_callbacks_may_submit_while_windows_are_full() -> None:
    """A callback runs in a thread that reads from one broker: it must not wait for another one's."""
    with processes(2, shards=2) as started, started.open() as session:
        left, done = [2_000], threading.Event()

        def more(_future: object) -> None:
            left[0] -= 1
            if left[0] > 0:
                session.submit(abs, 1).add_done_callback(more)
            else:
                done.set()

        for _ in range(64):
            session.submit(abs, 1).add_done_callback(more)
        assert done.wait(WAIT_S)


def test_a_session_with_several_brokers_is_an_executor() -> None:
    """Options, tags, failures, cancelling; a shape that it does not have is refused."""
    with processes(2, shards=2) as started:
        session: Session = started.open()
        tagged = session.options(tags="t", attempts=2)
        futures = [tagged.submit(divmod, 1, 0) for _ in range(10)]
        assert all(isinstance(future.exception(), ZeroDivisionError) for future in futures)
        assert len(session.failures(tag="t")) == 10
        with pytest.raises(SpecError, match="no slots of shape"):
            session.options(shape="gpu")
        blocked = [session.submit(time.sleep, 0.2) for _ in range(40)]
        session.shutdown(cancel_futures=True)
        assert any(future.cancelled() for future in blocked)
        assert all(future.done() for future in blocked)
