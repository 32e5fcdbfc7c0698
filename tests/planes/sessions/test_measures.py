"""What a broker knows of its tasks: which failed and why, how many by function and tag, and when."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.planes.sessions.broker import MAX_LOSSES, Broker
from hal.planes.sessions.measures import MAX_FAILURE_BYTES, REST, Measures, Rates
from hal.wire.frames.sessions import MAX_FAILURES, MAX_GROUPS_TOLD, RATE_STEPS, StoreObject, SubmitTasks, TaskStatus
from tests.examples import examples
from tests.planes.sessions.wired_broker import Client, Worker, sizes


def submit(client: Client, function: str, payload: bytes = b"a", *, tags: tuple[str, ...] = (), **more: int) -> None:
    """One task of a function of this name."""
    ref = (client.submitter.number << 32) + 1_000 + client.submitted
    client.broker.store_object(client.submitter, StoreObject(ref=ref, data=b"f", name=function))
    frame = SubmitTasks(
        first=client.submitted, function=ref, sizes=sizes(len(payload)), payload=payload, tags=tags, **more
    )
    client.submitted += 1
    client.broker.submit(client.submitter, frame, 0)


def test_failures_are_kept_newest_first_with_what_was_raised() -> None:
    """Attempts, tags and the worker with them; a task that succeeds is none of them."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker, "n1:7")
    submit(client, "train", b"boom", tags=("night", "a"), attempts=2)
    submit(client, "load", b"bang", tags=("night",))
    submit(client, "load", b"fine")
    while worker.arguments:
        status = TaskStatus.DONE if worker.arguments[0] == b"fine" else TaskStatus.FAILED
        worker.finish(status=status, now_ms=1_000)
    found = broker.measures.failures(5_000).failures
    assert {(one.function, one.payload, one.attempts, one.tags) for one in found} == {
        ("train", b"boom", 2, ("night", "a")),
        ("load", b"bang", 1, ("night",)),
    }
    assert {(one.worker, one.status, one.ago_ms) for one in found} == {("n1:7", TaskStatus.FAILED, 4_000)}
    assert [one.function for one in broker.measures.failures(0, tag="a").failures] == ["train"]
    assert [one.function for one in broker.measures.failures(0, function="load").failures] == ["load"]
    assert broker.measures.failures(0, tag="b").failures == ()


def test_numbers_are_by_function_and_by_tag() -> None:
    """A task with two tags counts in both; one that fails and runs again is retried, and failed once in the end."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    submit(client, "train", b"boom", tags=("x", "y"), attempts=3)
    for _ in range(3):
        worker.finish(status=TaskStatus.FAILED, took_us=7)
    submit(client, "train", tags=("x",))
    worker.finish(took_us=5)
    numbers = broker.numbers(0, 1, each=True)
    (function,) = numbers.functions
    assert (function.name, function.done, function.failed, function.retried, function.busy_us) == ("train", 1, 1, 2, 26)
    assert {tag.name: (tag.done, tag.failed) for tag in numbers.tags} == {"x": (1, 1), "y": (0, 1)}
    assert numbers.ended[TaskStatus.DONE] == 1
    assert numbers.ended[TaskStatus.FAILED] == 1
    assert numbers.retried == 2


def test_a_quarantined_task_says_how_its_last_worker_ended() -> None:
    """It is answered when that is known."""
    broker = Broker()
    client = Client(broker)
    submit(client, "poison")
    for _ in range(MAX_LOSSES):
        worker = Worker(broker, "n1:7")
        assert worker.arguments == [b"a"]
        waits = broker.remove_slot(worker.slot, 0, explained=True)
    assert waits
    assert client.answers() == {}
    broker.explain_death(worker.slot.number, "n1:8", "another one did", 0)
    broker.explain_death(worker.slot.number, "n1:7", "it was killed by SIGSEGV\nFile x, line 1", 0)
    broker.explain_death(worker.slot.number, "n1:7", "", 0)
    (status, text) = client.answers()[0]
    assert status == TaskStatus.QUARANTINED
    assert b"it was killed by SIGSEGV\nFile x, line 1" in text
    (failure,) = broker.measures.failures(0).failures
    assert (failure.payload, failure.attempts, failure.worker) == (text, MAX_LOSSES, "n1:7")
    assert broker.measures.lost_workers == MAX_LOSSES


def test_a_death_may_be_explained_before_it_is_noticed() -> None:
    """The next worker may dial before the former connection is seen to end; of a worker that nobody explains, the
    reason is missing, and the answer is not."""
    broker = Broker()
    client = Client(broker)
    submit(client, "f", once=True)
    first = Worker(broker, "n1:7")
    broker.explain_death(first.slot.number, "n1:7", "it exited with code 3", 0)
    assert not broker.remove_slot(first.slot, 0, explained=True)
    assert b"code 3" in client.answers()[0][1]
    submit(client, "f", once=True)
    second = Worker(broker, "n1:7")
    assert broker.remove_slot(second.slot, 0, explained=True)
    broker.explain_death(second.slot.number, "n1:7", "", 0)
    assert client.answers()[1] == (TaskStatus.LOST, b"its worker ended while it may have run")


def test_what_is_kept_is_bounded() -> None:
    """Failures by their number and their bytes, functions and tags by their number."""
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    for number in range(MAX_FAILURES + 5):
        submit(client, f"f{number}", tags=(f"t{number}",))
        worker.finish(status=TaskStatus.FAILED)
    found = broker.measures.failures(0)
    assert [one.function for one in found.failures] == [f"f{number}" for number in range(MAX_FAILURES + 4, 4, -1)]
    assert found.ever == MAX_FAILURES + 5
    for groups in (broker.measures.functions(), broker.measures.tags()):
        assert len(groups) == MAX_GROUPS_TOLD
        assert groups[-1].name == REST
        assert sum(one.failed for one in groups) == MAX_FAILURES + 5
    for _ in range(6):
        submit(client, "large", bytes(MAX_FAILURE_BYTES // 4))
        worker.finish(status=TaskStatus.FAILED)
    assert sum(len(one.payload) for one in broker.measures.failures(0).failures) <= MAX_FAILURE_BYTES
    assert broker.measures.failures(0).failures[0].function == "large"


def test_a_slot_says_what_it_runs() -> None:
    broker = Broker()
    client, worker = Client(broker), Worker(broker)
    submit(client, "train", tags=("night",))
    (slot,) = broker.numbers(0, 1, each=True).each
    assert (slot.running, slot.tags) == ("train", ("night",))
    worker.finish()
    (slot,) = broker.numbers(0, 1, each=True).each
    assert (slot.running, slot.tags) == ("", ())


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 5)), max_size=40), st.integers(0, 100_000))
def test_rates_are_those_of_the_last_steps(notes: list[tuple[int, int]], later_ms: int) -> None:
    """Against a list of all reports."""
    rates, now_ms = Rates(1_000), 5_000_000
    seen: list[tuple[int, int]] = []
    for passed_ms, tasks in notes:
        now_ms += passed_ms
        rates.note(now_ms, tasks)
        seen.append((now_ms // 1_000, tasks))
    now_ms += later_ms
    steps = range(now_ms // 1_000 - RATE_STEPS + 1, now_ms // 1_000 + 1)
    assert rates.told(now_ms) == tuple(sum(tasks for at, tasks in seen if at == step) for step in steps)


def test_cancelled_tasks_are_counted_and_have_not_failed() -> None:
    measures = Measures()
    measures.note_cancelled(3)
    assert measures.ended[TaskStatus.CANCELLED] == 3
    assert measures.failures(0).ever == 0
