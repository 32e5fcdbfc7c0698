"""Slots that come and go as they are wanted: who leaves, and what becomes of what it had; a broker's numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.planes.sessions.broker import Broker
from hal.planes.sessions.measures import Latencies
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import LATENCY_STEPS, SLOT_RETIRED, TaskStatus
from tests.examples import examples
from tests.planes.sessions.wired_broker import Client, Worker


def told_to_leave(worker: Worker) -> bool:
    """Whether it got its goodbye."""
    return any(isinstance(frame, Goodbye) and frame.code == SLOT_RETIRED for frame in worker.outbox.frames)


def workers_of(broker: Broker, count: int) -> list[Worker]:
    """Workers that are the tasks 0, 1, 2 and so on of the session's job."""
    made = [Worker(broker) for _ in range(count)]
    for task, worker in enumerate(made):
        worker.slot.task = task
    return made


def test_the_last_idle_slots_are_retired_first() -> None:
    """Of four, one is kept besides the one that works, which has the highest number."""
    broker = Broker()
    workers = workers_of(broker, 4)
    client = Client(broker)
    client.submit(1)
    (busy,) = [worker for worker in workers if worker.arguments]
    busy.slot.task = 9
    broker.retire(2)
    left = [worker for worker in workers if told_to_leave(worker)]
    idle = [worker for worker in workers if worker is not busy]
    assert left == sorted(idle, key=lambda one: one.slot.task)[1:]


def test_a_slot_with_a_task_is_not_retired() -> None:
    broker = Broker()
    (worker,) = workers_of(broker, 1)
    Client(broker).submit(1)
    broker.retire(0)
    assert not told_to_leave(worker)
    worker.finish()
    assert not told_to_leave(worker)


def test_a_retired_slot_is_sent_nothing_more() -> None:
    broker = Broker()
    workers = workers_of(broker, 2)
    broker.retire(1)
    Client(broker).submit(5)
    assert not workers[1].arguments
    assert workers[0].arguments


def test_slots_that_leave_already_are_not_counted_twice() -> None:
    broker = Broker()
    workers = workers_of(broker, 3)
    broker.retire(2)
    broker.retire(2)
    assert [told_to_leave(worker) for worker in workers] == [False, False, True]


def test_a_worker_that_leaves_finishes_what_it_has_begun() -> None:
    """It gives the rest back, which another worker runs, and goes only then."""
    broker = Broker()
    (first,) = workers_of(broker, 1)
    client = Client(broker)
    client.submit(50)
    first.finish(took_us=10)
    assert len(first.arguments) == 49
    broker.leave(first.slot)
    first.receive()
    assert first.recalled
    first.give_back()
    assert not told_to_leave(first)
    second = Worker(broker)
    first.finish(took_us=10)
    assert told_to_leave(first)
    broker.remove_slot(first.slot, 0)
    while second.arguments:
        second.finish(100)
    assert {task: status for task, (status, _) in client.answers().items()} == dict.fromkeys(range(50), TaskStatus.DONE)


def test_numbers_count_tasks_slots_and_latencies() -> None:
    """Three tasks came at 0; one was answered after 5 ms, within 8."""
    broker = Broker()
    worker, _ = workers_of(broker, 2)
    client = Client(broker)
    client.submit(3)
    worker.finish(now_ms=5, took_us=1_000)
    found = broker.numbers(10, 10, each=True)
    assert (found.done, found.unanswered, found.clients, found.slots, found.uptime_ms) == (1, 2, 1, 2, 10)
    assert found.latencies[3] == sum(found.latencies) == 1
    assert (found.each[0].done, found.each[0].busy_us) == (1, 1_000)
    assert broker.numbers(10, 10).each == ()


@given(st.integers(0, 1 << 40))
@settings(max_examples=examples(200))
def test_a_latency_is_counted_where_it_is_within(took_ms: int) -> None:
    """In the first step whose bound it is below; the last one has no bound."""
    found = Latencies()
    found.note(took_ms, 1)
    (step,) = [step for step, tasks in enumerate(found.counts) if tasks]
    assert step == LATENCY_STEPS - 1 or took_ms < 1 << step
    assert not step or took_ms >= 1 << (step - 1)


def test_a_client_is_forgotten_again_when_nobody_runs_its_tasks() -> None:
    """What these have written until then is nobody's: of two workers one reports its task, and the other one dies."""
    broker = Broker()
    forgotten: list[int] = []
    broker.forget_client = forgotten.append
    workers, gone, other = workers_of(broker, 2), Client(broker), Client(broker)
    gone.submit(2)
    other.submit(1)
    assert all(worker.arguments for worker in workers)
    broker.remove_submitter(gone.submitter)
    workers[0].finish()
    assert forgotten == [gone.submitter.number]
    workers[1].die()
    assert forgotten == [gone.submitter.number] * 2
    workers[0].finish()
    broker.remove_submitter(other.submitter)
    assert forgotten == [gone.submitter.number] * 2 + [other.submitter.number]
