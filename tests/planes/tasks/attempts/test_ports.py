"""Ports at which ranks meet: an attempt's own on all its nodes, as long as it is active, whatever is undone."""

from __future__ import annotations

from hal.core.model import spec_from_plain
from hal.core.model.facts import Facts
from hal.core.model.policy import Policy
from hal.planes.tasks import Arrival, TaskPlane, check_table
from hal.planes.tasks.live.port_book import FIRST_PORT, MAX_TRIES, PORTS, PortBook
from hal.store import Group, MemoryDatabase, Store
from tests.planes.tasks.pending_model import PendingModel
from tests.planes.tasks.small_plane import BY, SmallPlane


def started(small: SmallPlane, **spec: object) -> tuple[int, int]:
    """A job that has begun, and the port that its steps are told."""
    (job,) = small.submit(spec)
    orders = small.start((job, 0)).orders
    (port,) = {start.master_port for node in orders.values() for start in node.starts}
    return job, port


def test_gangs_that_share_a_node_never_share_a_port() -> None:
    """Nor do jobs of one node that ask for ranks; nobody else has one."""
    small = SmallPlane(nodes=2)
    ports = [started(small, nodes=2)[1] for _ in range(3)]
    ports.append(started(small, ranks_per_node=2)[1])
    assert ports == [FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2, FIRST_PORT + 3]
    assert started(small)[1] == 0


def test_nodes_of_one_machine_have_one_set_of_ports() -> None:
    """They are reached at the same address: a gang on the first two, one on the others."""
    small = SmallPlane(nodes=4)
    for name in small.names:
        arrival = Arrival(name=name, capacity={"cpu": 2_000}, boot_id="b1", facts=Facts(address="host"))
        small.plane.record_arrival(arrival, small.now_ms)
    small.commit()
    assert started(small, nodes=2)[1] != started(small, nodes=2)[1]


def test_a_port_is_given_back_with_its_attempt_and_given_again_last() -> None:
    small = SmallPlane(nodes=2)
    job, port = started(small, nodes=2)
    for rank in range(2):
        small.end(job, rank=rank)
    assert len(small.plane._table.ports) == 0
    assert started(small, nodes=2)[1] == port + 1
    small.plane._table.ports._next = PORTS - 1  # as after all but one of the others were given
    assert [started(small, nodes=2)[1] for _ in range(2)] == [port + PORTS - 1, port]


def test_an_address_without_a_free_port_is_searched_within_bounds() -> None:
    """Then the attempt has none."""
    book = PortBook()
    for number in range(PORTS):
        book.take((1, number, 1), FIRST_PORT + number, ["a"])
    assert (book.choose(["a", "b"]), book.choose(["b"])) == (0, FIRST_PORT + MAX_TRIES)


def test_safety_a_start_and_an_end_that_were_not_committed_change_nothing() -> None:
    """The port of a gang whose end is undone was given to another one meanwhile, whose start is undone, too."""
    small = SmallPlane(nodes=2)
    table = small.plane._table
    job, port = started(small, nodes=2)
    table.ports._next = 0  # as after all the others were given
    (other,) = small.submit({"nodes": 2})
    steps = small.live(job).active[0]
    table.ports.give((job, 0, steps.attempt), port)
    starts, rows = small.engine.plan([(other, 0)], {other: 2})
    small.plane.allocate(starts, rows, small.names.__getitem__, 1, small.now_ms)
    table.touch(job)
    assert small.live(other).active[0].port == port
    small.plane.seal(small.now_ms)
    small.plane.undo()
    check_table(table)
    assert table.ports.holds((job, 0, 1), port)


def test_a_controller_that_starts_again_knows_the_ports_of_what_runs() -> None:
    """From the rows of the attempts; the next gang gets another one."""
    store = Store.open(MemoryDatabase())
    epoch = store.take_leadership("test", 1_000)
    engine = PendingModel()
    plane = TaskPlane(Policy(), engine)
    plane.load(store.load(), Policy())
    for name in ("n1", "n2"):
        plane.record_arrival(Arrival(name=name, capacity={"cpu": 64_000}, boot_id="b1"), 1_000)
    made = plane.submit([spec_from_plain({"command": ["true"], "nodes": 2})], BY, 1_000)
    change = plane.seal(1_000)
    store.commit(Group("a", 1_000, change.operations), epoch=epoch)
    plane.keep()
    for event in change.engine:
        engine.apply(event)
    starts, rows = engine.plan([(made[0].id, 0)], {made[0].id: 2})
    plane.allocate(starts, rows, ["n1", "n2"].__getitem__, 1, 1_000)
    store.commit(Group("b", 1_000, plane.seal(1_000).operations), epoch=epoch)
    plane.keep()
    again = TaskPlane(Policy(), PendingModel())
    again.load(store.load(), Policy())
    check_table(again._table)
    assert again._table.ports.holds((made[0].id, 0, 1), FIRST_PORT)
    assert again._table.ports.choose(["n2"]) == FIRST_PORT + 1
