"""Slots of several shapes, and tasks whose key binds them to one worker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model.errors import SpecError
from hal.planes.sessions.broker import Broker
from hal.planes.sessions.pools import Homes, Pool
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import CancelTasks, RunTasks, TaskStatus
from tests.examples import examples
from tests.planes.sessions.wired_broker import Client, Worker, check_keys, check_loads, lines_in


def fresh_runs(worker: Worker) -> list[tuple[str, bool]]:
    """Key of each run that it was sent, and whether it keeps nothing of it yet."""
    return [(frame.key, frame.fresh) for frame in worker.outbox.frames if isinstance(frame, RunTasks)]


def wanted(broker: Broker) -> dict[str, tuple[int, int]]:
    return {one.shape: (one.wanted, one.slots) for one in broker.numbers(0, 0).shapes}


def test_tasks_run_in_slots_of_their_shape_only() -> None:
    broker = Broker(["gpu"])
    client, plain, gpu = Client(broker), Worker(broker), Worker(broker, shape="gpu")
    first = client.submit(3, shape="gpu")
    second = client.submit(2)
    assert gpu.finish(10) == [b"0", b"1", b"2"]
    assert plain.finish(10) == [b"3", b"4"]
    assert sorted(client.answers()) == [first, first + 1, first + 2, second, second + 1]


def test_a_free_slot_of_another_shape_does_not_recall_tasks() -> None:
    """The only slot of its shape is late; that of another shape has nothing to do."""
    broker = Broker(["gpu"])
    client, gpu = Client(broker), Worker(broker, shape="gpu")
    Worker(broker)
    client.submit(100, shape="gpu")
    gpu.finish(20, took_us=10)
    assert not broker.idle_beside_work
    assert not broker.recall_late(1_000)


def test_a_shape_that_the_session_does_not_have_is_refused() -> None:
    broker = Broker(["gpu"])
    client = Client(broker)
    with pytest.raises(SpecError, match="no slots of shape 'tpu'"):
        client.submit(1, shape="tpu")
    with pytest.raises(SpecError, match="no slots of shape 'tpu'"):
        Worker(broker, shape="tpu")


def test_each_shape_wants_slots_for_its_own_tasks() -> None:
    """Four plain tasks and two for GPUs wait; what is done or cancelled is not wanted any more, nor what was its
    client's."""
    broker = Broker(["gpu"])
    client, other = Client(broker), Client(broker)
    client.submit(4)
    client.submit(2, shape="gpu")
    other.submit(5)
    assert wanted(broker) == {"": (9, 0), "gpu": (2, 0)}
    broker.remove_submitter(other.submitter)
    Worker(broker).finish(4)
    assert wanted(broker) == {"": (0, 1), "gpu": (2, 0)}


def test_tasks_of_a_key_go_to_one_slot_in_order() -> None:
    broker = Broker()
    client, workers = Client(broker), [Worker(broker), Worker(broker)]
    for _ in range(6):
        client.submit(3, key="a")
        client.submit(3, key="b")
    ran: list[list[bytes]] = [[], []]
    for _ in range(100):
        for worker, done in zip(workers, ran, strict=True):
            done += worker.finish(1, took_us=5_000)
    tasks_of_a = [str(6 * block + at).encode() for block in range(6) for at in range(3)]
    tasks_of_b = [str(6 * block + 3 + at).encode() for block in range(6) for at in range(3)]
    assert sorted(ran) == sorted([tasks_of_a, tasks_of_b])
    assert fresh_runs(workers[0])[0][1]
    assert not any(fresh for _, fresh in fresh_runs(workers[0])[1:])


def test_tasks_of_a_key_are_not_stolen_by_a_free_slot() -> None:
    """They are recalled at most, and wait for their own slot."""
    broker = Broker()
    client, one = Client(broker), Worker(broker)
    client.submit(20, key="a")
    one.finish(1, took_us=10)
    other = Worker(broker)
    broker.recall_late(1_000)
    one.receive()
    assert one.recalled
    one.give_back(1_000)
    assert other.arguments == []
    while len(client.answers()) < 20:
        assert one.finish(1, 2_000)
    assert other.arguments == []


def test_the_key_of_a_lost_slot_goes_on_elsewhere_and_begins_anew() -> None:
    broker = Broker()
    client, one = Client(broker), Worker(broker)
    client.submit(5, key="a")
    one.finish(1, took_us=5_000)
    other = Worker(broker)
    assert other.arguments == []
    one.die()
    assert other.finish(1, took_us=5_000) == [b"1"]
    assert fresh_runs(other)[:2] == [("a", True), ("a", False)]
    while other.finish(1, took_us=5_000):
        pass
    assert len(client.answers()) == 5


def test_keys_wait_for_a_slot_and_share_those_that_come() -> None:
    """Four keys with nothing begun are spread over the slots that there are."""
    broker = Broker()
    client = Client(broker)
    for key in "abcd":
        client.submit(2, key=key)
    assert wanted(broker)[""] == (4, 0)
    workers = [Worker(broker), Worker(broker)]
    for worker in workers:
        assert worker.slot.keys == 2
    for _ in range(10):
        for worker in workers:
            worker.finish(1, took_us=5_000)
    assert len(client.answers()) == 8


def test_a_slot_that_comes_takes_its_share_of_the_keys_and_no_more() -> None:
    """Of 300 keys that nothing has begun: each of ten slots that come has about as many as any other, and a key behind
    a task moves to a slot that has none."""
    broker = Broker()
    client, workers = Client(broker), [Worker(broker)]
    for number in range(300):
        client.submit(1, key=f"k{number}")
    for come in range(2, 11):
        before = [worker.slot.keys for worker in workers]
        workers.append(Worker(broker))
        keys = [worker.slot.keys for worker in workers]
        assert sum(keys) == 300
        assert max(keys) - min(keys) <= 300 // come // 5 + 2
        assert sum(map(abs, (now - then for then, now in zip(before, keys[:-1], strict=True)))) <= 300 // come + come
    while any(worker.finish(1) for worker in workers):
        pass
    assert len(client.answers()) == 300
    broker = Broker()
    client, busy = Client(broker), Worker(broker)
    client.submit(1)
    client.submit(1, key="a")
    assert Worker(broker).arguments == [b"1"]
    assert busy.arguments == [b"0"]


def test_what_a_slot_costs_that_comes_or_leaves_does_not_follow_from_keys_elsewhere() -> None:
    """Of 5,000 keys that others have begun."""
    broker = Broker()
    client, worker, other = Client(broker), Worker(broker), Worker(broker)
    for number in range(5_000):
        client.submit(1, key=f"k{number}")
    while worker.finish(1_000) or other.finish(1_000):
        pass
    assert worker.slot.keys == other.slot.keys == 2_500
    new: list[Worker] = []
    assert lines_in(lambda: new.append(Worker(broker))) < 500
    assert lines_in(lambda: broker.leave(new[0].slot)) < 500
    broker.leave(worker.slot)
    assert (worker.slot.keys, other.slot.keys) == (0, 2_500)


def test_a_slot_that_comes_costs_what_its_share_of_the_waiting_keys_is() -> None:
    """Of 4,000 keys that nothing has begun, at 100 slots: those of its tasks that were cancelled in between stay so."""
    broker = Broker()
    client, workers = Client(broker), [Worker(broker) for _ in range(100)]
    for number in range(4_000):
        client.submit(3, key=f"k{number}")
    broker.cancel(client.submitter, CancelTasks(ranges=tuple((3 * number + 1, 1) for number in range(0, 4_000, 200))))
    assert lines_in(lambda: workers.append(Worker(broker))) < 10_000
    assert workers[-1].slot.keys == 40
    check_keys(broker)
    while any(worker.finish(1) for worker in workers):
        pass
    assert len(client.answers()) == 12_000


def test_a_slot_with_keys_is_not_retired_until_its_clients_are_gone() -> None:
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(1, key="a")
    worker.finish(1)
    assert wanted(broker)[""] == (1, 1)
    broker.retire(0)
    assert not worker.slot.leaving
    broker.remove_submitter(client.submitter)
    assert wanted(broker)[""] == (0, 1)
    broker.retire(0)
    assert isinstance(worker.outbox.frames[-1], Goodbye)


def test_threads_of_a_worker_are_retired_together() -> None:
    """Of two workers of two threads one goes; one thread alone is never told to."""
    broker = Broker()
    first = Worker(broker)
    group = [first, Worker(broker, worker=first.slot.number)]
    second = Worker(broker)
    group += [second, Worker(broker, worker=second.slot.number)]
    broker.retire(3)
    assert not any(worker.slot.leaving for worker in group)
    broker.retire(2)
    assert sum(worker.slot.leaving for worker in group) == 2
    broker.retire(0)
    assert all(worker.slot.leaving for worker in group)


def test_tasks_beside_one_that_takes_too_long_are_not_blamed() -> None:
    """Their worker ends itself three times, and each time the other thread's task runs again."""
    broker = Broker()
    client = Client(broker)
    for _ in range(3):
        first = Worker(broker)
        second = Worker(broker, worker=first.slot.number)
        client.submit(2)
        first.finish(1, status=TaskStatus.TIMED_OUT)
        first.die()
        second.die()
    last = Worker(broker)
    while last.finish(1):
        pass
    statuses = Counter(status for status, _ in client.answers().values())
    assert statuses == {TaskStatus.TIMED_OUT: 3, TaskStatus.DONE: 3}


def test_work_with_and_without_keys_takes_turns() -> None:
    """The only slot runs both kinds, although both never end."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(50, key="a")
    client.submit(50)
    ran = [int(worker.finish(1, took_us=5_000)[0]) for _ in range(20)]
    assert 8 <= sum(task < 50 for task in ran) <= 12


def test_urgent_tasks_come_before_those_with_a_key() -> None:
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    client.submit(5, key="a")
    worker.finish(1, took_us=5_000)
    client.submit(3, priority=5)
    ran = [int(worker.finish(1, took_us=5_000)[0]) for _ in range(5)]
    assert sorted(ran[1:4]) == [5, 6, 7]


def test_cancelled_tasks_of_a_key_are_wanted_nowhere() -> None:
    from hal.wire.frames.sessions import CancelTasks

    broker = Broker()
    client = Client(broker)
    first = client.submit(10, key="a")
    broker.cancel(client.submitter, CancelTasks(ranges=((first, 10),)))
    assert {status for status, _ in client.answers().values()} == {TaskStatus.CANCELLED}
    assert wanted(broker)[""] == (0, 0)


def test_the_worker_of_a_key_that_nobody_used_for_long_is_forgotten_and_no_other() -> None:
    """Of three keys at most, the one that has tasks stays."""
    homes, pool = Homes(most=3), Pool()
    homes.use(pool, "busy", 1).tasks = 1
    idle = homes.use(pool, "idle", 1)
    homes.use(pool, "new", 1)
    homes.use(pool, "newer", 1)
    assert homes.use(pool, "busy", 1).tasks == 1
    assert homes.use(pool, "idle", 1) is not idle
    homes.forget_user(1)
    assert homes.use(pool, "busy", 1).tasks == 0


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_safety_keys_and_shapes_lose_no_task_and_keep_their_order(data: st.DataObject) -> None:
    """Workers of two shapes come and die, clients press, cancel and go; every task is answered once, and those of a
    key run one by one, in order, unless a worker of theirs was lost or left."""
    broker = Broker(["gpu"])
    clients, other = [Client(broker), Client(broker)], Client(broker)
    workers: list[Worker] = []
    submitted = [0, 0]
    kinds: list[dict[int, tuple[str, str, int]]] = [{}, {}]
    lost = False
    words = ["submit", "submit", "come", "die", "finish", "finish", "late", "press", "leave", "cancel", "other", "go"]
    for now_ms in range(data.draw(st.integers(5, 40))):
        match data.draw(st.sampled_from(words)):
            case "submit":
                at = data.draw(st.integers(0, 1))
                count = data.draw(st.integers(1, 20))
                key, shape = data.draw(st.sampled_from(["", *"abcd"])), data.draw(st.sampled_from(["", "gpu"]))
                depth = data.draw(st.integers(0, 1))
                first = clients[at].submit(count, now_ms, key=key, shape=shape, depth=depth)
                kinds[at].update(dict.fromkeys(range(first, first + count), (key, shape, depth)))
                submitted[at] += count
            case "other":
                other.submit(3, now_ms, key=data.draw(st.sampled_from("abcd")))
            case "go":
                broker.remove_submitter(other.submitter)
                other = Client(broker)
            case "cancel":
                ranges = ((data.draw(st.integers(0, 100)), data.draw(st.integers(1, 30))),)
                broker.cancel(clients[data.draw(st.integers(0, 1))].submitter, CancelTasks(ranges=ranges))
            case "come":
                workers.append(Worker(broker, now_ms=now_ms, shape=data.draw(st.sampled_from(["", "gpu"]))))
            case "die" if workers:
                lost = True
                workers.pop(data.draw(st.integers(0, len(workers) - 1))).die(now_ms)
            case "leave" if workers:
                lost = True
                broker.leave(workers[data.draw(st.integers(0, len(workers) - 1))].slot)
            case "late":
                broker.recall_late(now_ms * 10)
            case "press":
                one = clients[data.draw(st.integers(0, 1))].submitter
                broker.press(one, on=not one.pressed)
                broker.dispatch(now_ms)
            case _:
                for worker in workers:
                    worker.finish(data.draw(st.integers(0, 3)), now_ms, took_us=data.draw(st.integers(1, 9_000)))
        for worker in workers:
            worker.receive()
            if worker.recalled:
                worker.give_back(now_ms)
        check_loads(broker)
        check_keys(broker)
    for client in clients:
        broker.press(client.submitter, on=False)
    workers += [Worker(broker), Worker(broker, shape="gpu")]
    for _ in range(3_000):
        for worker in workers:
            worker.finish(1, 100_000)
            if worker.recalled:
                worker.give_back(100_000)
    for client, count, kind in zip(clients, submitted, kinds, strict=True):
        answers = client.answers()
        assert sorted(answers) == list(range(count))
        for one in set(kind.values()) if not lost else ():
            ran = [task for task, (status, _) in answers.items() if kind[task] == one and status == TaskStatus.DONE]
            assert not one[0] or ran == sorted(ran)
    numbers = broker.numbers(0, 0)
    assert (numbers.waiting, numbers.unanswered) == (0, 0)
    assert all(one.wanted <= one.slots for one in numbers.shapes)
