"""The broker's decisions: batches, turns, recalls, lost workers; each task is answered once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model.errors import OverloadedError, SpecError
from hal.planes.sessions.broker import AHEAD_US, BATCH_US, LATE_MS, LEAST_BATCH_US, MAX_LOSSES, Broker
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.sessions import (
    MAX_NEEDS,
    SESSIONS,
    CancelTasks,
    DropObjects,
    StoreObject,
    SubmitTasks,
    TasksDone,
    TasksReceived,
    TasksReturned,
    TaskStatus,
)
from tests.examples import examples
from tests.planes.sessions.wired_broker import Client, Worker, check_loads, lines_in, sizes

DONE = TaskStatus.DONE


def test_the_first_tasks_of_a_function_go_singly() -> None:
    """Nobody knows how long they take."""
    broker = Broker()
    client, workers = Client(broker), [Worker(broker), Worker(broker)]
    client.submit(100)
    assert [worker.arguments for worker in workers] == [[b"0"], [b"1"]]


def test_short_tasks_travel_in_batches_and_long_ones_singly() -> None:
    """Of 10 µs, 400 fit into the 4 ms of a batch, and a second batch is sent with it; of 1 s, one."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(1_000)
    worker.finish(took_us=10)
    assert [len(arguments) for _, arguments in worker.runs.values()] == [BATCH_US // 10] * 2
    worker.finish(len(worker.arguments), took_us=1_000_000)
    assert len(worker.arguments) == 1


@pytest.mark.parametrize("took_us", [10, 250, 1_000, 1_010, 1_999])
def test_a_slot_has_the_next_batch_while_the_results_of_one_travel(took_us: int) -> None:
    """However tasks fit into a batch, which their slot reports when it ends."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(int(10 * BATCH_US / took_us))
    worker.finish(took_us=took_us)
    for _ in range(5):
        first, _next = worker.runs.values()
        worker.finish(len(first[1]), took_us=took_us)


@pytest.mark.parametrize("took_us", [AHEAD_US, 2 * AHEAD_US])
def test_a_slot_has_nothing_behind_a_task_that_takes_a_while(took_us: float) -> None:
    """Nor behind one of a function that was not measured: what comes then would wait for it."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(10)
    for _ in range(5):
        assert len(worker.arguments) == 1
        worker.finish(took_us=int(took_us))


def test_a_small_block_is_shared_among_the_slots() -> None:
    """Not all of it goes to the first one that wants some."""
    broker = Broker()
    client, first = Client(broker), Worker(broker)
    client.submit(1)
    first.finish(took_us=20)
    second = Worker(broker)
    client.submit(10)
    assert sorted(map(len, (first.arguments, second.arguments))) == [5, 5]


def test_what_takes_less_than_to_hand_it_out_is_not_divided() -> None:
    """A thousand slots would get one microsecond each, by a frame each."""
    broker = Broker()
    client, first = Client(broker), Worker(broker)
    client.submit(1)
    first.finish(took_us=1)
    workers = [first, *(Worker(broker) for _ in range(999))]
    client.submit(1_000)
    assert sorted(map(len, (worker.arguments for worker in workers)))[-11:] == [0, *[LEAST_BATCH_US] * 10]


def test_what_was_measured_of_a_function_is_forgotten_with_it() -> None:
    """A client may send any number of functions, one after the other."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(1)
    worker.finish()
    broker.drop_objects(client.submitter, DropObjects(refs=(client.function,)))
    assert not broker._mean_us


def test_results_arrive_with_the_payload_of_their_task() -> None:
    """Blocks are cut into batches and reported in parts."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(500)
    while worker.arguments:
        worker.finish(7)
    assert client.answers() == {task: (DONE, str(task).encode()) for task in range(500)}


def test_tasks_of_a_higher_priority_begin_first() -> None:
    """Those that a slot has already stay there."""
    broker = Broker()
    client = Client(broker)
    client.submit(2)
    client.submit(1, priority=5)
    worker = Worker(broker)
    assert worker.finish(3) == [b"2", b"0", b"1"]


def test_clients_take_turns() -> None:
    """One that comes later does not wait for all tasks of the first one."""
    broker = Broker()
    first, worker = Client(broker), Worker(broker)
    first.submit(10)
    worker.finish(took_us=1_000_000)
    second = Client(broker)
    second.submit(10)
    for _ in range(8):
        worker.finish(took_us=1_000_000)
    assert len(second.answers()) == 4


def test_tasks_of_a_lost_worker_run_elsewhere() -> None:
    """Those that it had reported do not."""
    broker = Broker()
    client, lost = Client(broker), Worker(broker)
    client.submit(10)
    lost.finish(3)
    lost.die()
    other = Worker(broker)
    assert other.finish(100) == [str(task).encode() for task in range(3, 10)]
    assert len(client.answers()) == 10


def test_a_task_that_kills_its_workers_is_quarantined_and_no_other() -> None:
    """The tasks that were sent with it run again, each alone until it is known which one it was."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(20)
    worker.finish(took_us=10)
    for _ in range(30):
        if worker.arguments and worker.arguments[0] == b"7":
            worker.die()
            worker = Worker(broker)
        else:
            worker.finish(took_us=10)
    answers = client.answers()
    assert [task for task, (status, _) in answers.items() if status != DONE] == [7]
    assert answers[7][0] == TaskStatus.QUARANTINED
    assert str(MAX_LOSSES).encode() in answers[7][1]
    assert len(answers) == 20


def test_a_task_that_may_run_once_is_lost_with_its_worker() -> None:
    """What the worker did not have runs elsewhere. All that it had may have begun: results of the tasks before can be
    lost with it."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(40, once=True)
    worker.finish(took_us=1_000)
    begun = len(worker.arguments)
    assert len(worker.runs) > 1
    worker.die()
    Worker(broker).finish(100)
    lost = [task for task, (status, _) in client.answers().items() if status == TaskStatus.LOST]
    assert sorted(lost) == list(range(1, 1 + begun))
    assert len(client.answers()) == 40


def test_a_task_that_fails_runs_as_often_as_it_may() -> None:
    """Those beside it are answered."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(1)
    worker.finish(took_us=10)
    client.submit(3, attempts=2)
    worker.finish(1)
    assert worker.finish(1, status=TaskStatus.FAILED) == [b"2"]
    assert worker.finish(1) == [b"3"]
    assert worker.finish(1, status=TaskStatus.FAILED) == [b"2"]
    assert {task: status for task, (status, _) in client.answers().items()} == {0: 0, 1: 0, 2: 1, 3: 0}


def test_a_late_slot_returns_what_it_has_not_begun_to_a_free_one() -> None:
    """No task waits behind a long one when another slot is free."""
    broker = Broker()
    client, late = Client(broker), Worker(broker)
    client.submit(5)
    late.finish(took_us=10)
    free = Worker(broker)
    assert broker.idle_beside_work
    assert broker.recall_late(LATE_MS - 1)
    late.receive()
    assert not late.recalled
    broker.recall_late(LATE_MS)
    late.receive()
    assert late.recalled
    late.give_back(LATE_MS)
    assert late.arguments == [b"1"]
    assert free.finish(3) == [b"2", b"3", b"4"]


def test_what_is_asked_after_each_frame_looks_at_few_slots() -> None:
    """Whether a slot is idle beside work: of a thousand that all want more, and then when one of them is idle."""
    broker = Broker()
    client = Client(broker)
    workers = [Worker(broker) for _ in range(1_000)]
    client.submit(1)
    workers[0].finish(took_us=int(AHEAD_US / 2))
    client.submit(1_000)
    assert lines_in(lambda: broker.idle_beside_work) < 50
    workers[0].finish()
    assert workers[0].slot.idle
    assert lines_in(lambda: broker.idle_beside_work) < 50
    assert lines_in(lambda: broker.recall_late(LATE_MS)) < 50


def test_a_slot_whose_task_waits_is_sent_others() -> None:
    """It runs them meanwhile; what they were submitted by is lost with it."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(3)
    worker.receive()
    (waiting,) = worker.runs
    assert worker.arguments == [b"0"]
    broker.note_waiting(worker.slot, waiting, 0, waits=True)
    assert worker.arguments == [b"0", b"1"]
    broker.note_waiting(worker.slot, waiting, 0, waits=False)
    worker.die()
    assert Worker(broker).finish(3) == [b"0", b"1", b"2"]


def test_deeper_tasks_begin_first_and_the_newest_of_them() -> None:
    """Of whichever client: those that wait for them hold threads."""
    broker = Broker()
    client, nested, other = Client(broker), Client(broker), Client(broker)
    client.submit(1)
    nested.submit(1, depth=1)
    nested.submit(1, depth=1)
    other.submit(1, depth=2)
    worker = Worker(broker)
    order = [worker.finish(1, took_us=1_000_000) for _ in range(4)]
    assert order == [[b"0"], [b"1"], [b"0"], [b"0"]]
    assert [bool(one.answers()) for one in (client, nested, other)] == [True] * 3


def test_a_slot_waits_in_runs_that_it_has() -> None:
    """Others are refused."""
    broker = Broker()
    worker = Worker(broker)
    with pytest.raises(SpecError):
        broker.note_waiting(worker.slot, 7, 0, waits=True)


def test_cancelled_tasks_are_answered_and_others_run() -> None:
    """One that a worker has is not cancelled."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(6)
    broker.cancel(client.submitter, CancelTasks(ranges=((0, 1), (2, 2))))
    worker.finish(10)
    statuses = {task: status for task, (status, _) in client.answers().items()}
    assert statuses == {0: 0, 1: 0, 2: 4, 3: 4, 4: 0, 5: 0}


def test_a_client_that_left_costs_nothing_more() -> None:
    """What a worker has of it ends there; what waited is gone."""
    broker = Broker()
    gone, worker = Client(broker), Worker(broker)
    gone.submit(10)
    broker.remove_submitter(gone.submitter)
    stays = Client(broker)
    stays.submit(1)
    assert worker.finish(10) == [b"0", b"0"]
    assert len(stays.answers()) == 1


def test_a_client_that_left_with_many_objects_ends_no_worker() -> None:
    """It is told to forget them by frames that it understands."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    refs = [client.function + 1 + number for number in range(MAX_NEEDS + 10)]
    for ref in refs:
        broker.store_object(client.submitter, StoreObject(ref=ref, data=b"x"))
    for needs in (refs[:MAX_NEEDS], refs[MAX_NEEDS:]):
        first, client.submitted = client.submitted, client.submitted + 1
        frame = SubmitTasks(first=first, function=client.function, needs=tuple(needs), sizes=sizes(1), payload=b"x")
        broker.submit(client.submitter, frame, 0)
        worker.finish()
    broker.remove_submitter(client.submitter)
    sent = FrameDecoder(SESSIONS).feed(b"".join(encode(frame) for frame in worker.outbox.frames))
    dropped = [ref for frame in sent if isinstance(frame, DropObjects) for ref in frame.refs]
    assert sorted(dropped) == [client.function, *refs]


def test_a_block_is_confirmed_unless_results_were_sent() -> None:
    """Once."""
    broker = Broker()
    client = Client(broker)
    client.submit(1)
    broker.acknowledge(client.submitter)
    broker.acknowledge(client.submitter)
    assert client.outbox.frames == [TasksReceived()]


@pytest.mark.parametrize(
    ("function", "lengths", "payload"),
    [(1, b"\1\0\0", b"x"), (1, sizes(1, 1), b"x"), (1, b"", b""), (2, sizes(1), b"x")],
    ids=["cut sizes", "payload too short", "no task", "unknown function"],
)
def test_a_malformed_block_is_refused(function: int, lengths: bytes, payload: bytes) -> None:
    """Nothing of it is kept."""
    broker = Broker()
    client = Client(broker)
    ref = (client.submitter.number << 32) + function
    with pytest.raises(SpecError):
        broker.submit(client.submitter, SubmitTasks(first=0, function=ref, sizes=lengths, payload=payload), 0)
    assert not client.submitter.waiting_tasks


def test_objects_of_another_client_are_refused() -> None:
    """Their ids begin with the client's number."""
    broker = Broker()
    one, other = Client(broker), Client(broker)
    with pytest.raises(SpecError, match="does not belong"):
        broker.store_object(one.submitter, StoreObject(ref=other.function, data=b"x"))


def test_a_client_far_beyond_its_window_is_refused() -> None:
    """It is told its window when it comes. What was refused counts for nothing afterwards."""
    broker = Broker(window_tasks=10)
    client = Client(broker)
    client.submit(20)
    for _ in range(3):
        with pytest.raises(OverloadedError):
            client.submit(1)
    assert client.submitter.unanswered == 20


def test_a_worker_that_reports_what_it_does_not_have_is_refused() -> None:
    """Another run, more than it has, not the next, sizes of others."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(1)
    worker.receive()
    (run,) = worker.runs
    good = TasksDone(run=run, index=0, statuses=b"\0", sizes=sizes(0), payload=b"", took_us=1)
    for bad in ({"run": run + 1}, {"index": 1}, {"statuses": b"\0\0", "sizes": sizes(0, 0)}, {"sizes": b""}):
        with pytest.raises(SpecError):
            broker.finish(worker.slot, TasksDone(**{**{f: getattr(good, f) for f in good.__struct_fields__}, **bad}), 0)
    with pytest.raises(SpecError):
        broker.return_tasks(worker.slot, TasksReturned(run=run, index=2), 0)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_safety_every_task_is_answered_once_with_its_own_result(data: st.DataObject) -> None:
    """Whatever workers do, as long as one lives at the end."""
    broker = Broker()
    clients = [Client(broker) for _ in range(2)]
    workers = [Worker(broker)]
    now = 0
    for _ in range(data.draw(st.integers(5, 40))):
        now += data.draw(st.integers(0, 5))
        worker = data.draw(st.sampled_from(workers))
        match data.draw(st.sampled_from(["submit", "finish", "fail", "die", "come", "recall", "cancel"])):
            case "submit":
                count, priority = data.draw(st.integers(1, 300)), data.draw(st.integers(0, 1))
                attempts = data.draw(st.integers(1, 3))
                data.draw(st.sampled_from(clients)).submit(count, now, priority=priority, attempts=attempts)
            case "finish":
                worker.finish(data.draw(st.integers(1, 200)), now, took_us=data.draw(st.sampled_from([1, 50, 5_000])))
            case "fail":
                worker.finish(1, now, status=TaskStatus.FAILED)
            case "die":
                worker.die(now)
                workers.remove(worker)
                workers.append(Worker(broker, now_ms=now))
            case "come":
                workers.append(Worker(broker, now_ms=now))
            case "recall":
                broker.recall_late(now + LATE_MS)
                for one in workers:
                    one.receive()
                    if one.recalled:
                        one.give_back(now, begun=data.draw(st.integers(0, 2)))
            case "cancel":
                client = data.draw(st.sampled_from(clients))
                start = data.draw(st.integers(0, 50))
                broker.cancel(client.submitter, CancelTasks(ranges=((start, 20),)))
        check_loads(broker)
    for one in workers:
        one.receive()
        if one.recalled:
            one.give_back(now)
    while any(one.arguments for one in workers):
        for one in workers:
            one.finish(1_000, now)
    for client in clients:
        answers = client.answers()
        assert sorted(answers) == list(range(client.submitted))
        for task, (status, payload) in answers.items():
            if status in (TaskStatus.DONE, TaskStatus.FAILED):
                assert payload == str(task).encode()
        assert client.submitter.unanswered == client.submitter.unanswered_bytes == 0
        assert not client.submitter.waiting_tasks
    assert all(not one.slot.runs and one.slot.expected_us == 0 for one in workers)
