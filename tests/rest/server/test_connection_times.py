"""The clock of connections: how long each may take for what it does, to the second, and who is not blamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import HALError
from hal.rest.errors import TooSlowError
from hal.rest.identity import Identity
from hal.rest.rights import Role
from hal.rest.server import connections as bounds
from hal.rest.server.connections import Connections, Strangers, TrackedConnection
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log


class InMemory:
    """A connection without a socket: what it does is set by the test."""

    def __init__(self, where: str = "192.0.2.1") -> None:
        self.where = where
        self.private = False
        self.user = ""
        self.accepted_s = 0.0
        self.table: dict[TrackedConnection, int] | None = None
        self.body_bytes = self.counted_bytes = self.unsent_bytes = 0
        self.unsent_of = ""
        self.closing = False
        self.waits_for_us = False
        self.unread_bytes = 0
        self.dropped = False
        self.cut_for: list[HALError | None] = []

    def cut(self, error: HALError | None = None) -> None:
        self.cut_for.append(error)
        self.leave()

    def drop(self) -> None:
        self.dropped = True
        self.leave()

    def stand(self, table: dict[TrackedConnection, int], since: int = 0) -> None:
        self.table = table
        table[self] = since

    def leave(self) -> None:
        if self.table is not None:
            self.table.pop(self, None)

    @property
    def ended(self) -> bool:
        return self.dropped or bool(self.cut_for)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Connections]:
    file = LogFile(tmp_path / "test.log")
    yield Connections(open_log(file, "test"), descriptors=20_000, at_once=300, now_s=lambda: 0.0)
    file.close()


def tick(shared: Connections, seconds: int) -> None:
    for _ in range(seconds):
        shared.tick()


def test_a_head_has_ten_seconds_and_is_told_why_it_ends(shared: Connections) -> None:
    """Not in the ninth second; in the tenth with 408."""
    one = InMemory()
    one.stand(shared.heads)
    tick(shared, bounds.HEAD_S - 1)
    assert not one.ended
    tick(shared, 1)
    assert isinstance(one.cut_for[0], TooSlowError)


@pytest.mark.parametrize("table", ["idle", "idle_private"])
def test_an_idle_connection_is_closed_after_75_seconds_without_a_word(shared: Connections, table: str) -> None:
    """Over any socket."""
    one = InMemory()
    one.stand(getattr(shared, table))
    tick(shared, bounds.KEEP_ALIVE_S - 1)
    assert not one.ended
    tick(shared, 1)
    assert one.cut_for == [None]


def test_only_what_stands_long_enough_is_closed(shared: Connections) -> None:
    """Two heads, the second five seconds younger: each has its own ten."""
    old, young = InMemory(), InMemory()
    old.stand(shared.heads)
    tick(shared, 5)
    young.stand(shared.heads, since=shared.second)
    tick(shared, 5)
    assert (old.ended, young.ended) == (True, False)


@pytest.mark.parametrize(("came", "cut"), [(bounds.BODY_BYTES - 1, True), (bounds.BODY_BYTES, False)])
def test_a_body_must_come_at_16_kib_a_second(shared: Connections, came: int, cut: bool) -> None:
    """160 KiB in 10 s; one byte less is too slow."""
    one = InMemory()
    one.stand(shared.bodies)
    one.body_bytes = came
    tick(shared, bounds.BODY_S)
    assert one.ended is cut


def test_a_body_is_judged_anew_every_ten_seconds(shared: Connections) -> None:
    """What came before does not count for the next ten."""
    one = InMemory()
    one.stand(shared.bodies)
    one.body_bytes = 10 * bounds.BODY_BYTES
    tick(shared, bounds.BODY_S)
    assert not one.ended
    tick(shared, bounds.BODY_S)
    assert one.ended


def test_a_body_that_hal_does_not_read_is_not_too_slow(shared: Connections) -> None:
    """Flow control stopped the peer: it cannot be blamed."""
    one = InMemory()
    one.stand(shared.bodies)
    one.waits_for_us = True
    tick(shared, 5 * bounds.BODY_S)
    assert not one.ended


@pytest.mark.parametrize(("read", "dropped"), [(bounds.STALL_BYTES - 1, True), (bounds.STALL_BYTES, False)])
def test_an_answer_must_be_read_at_1_kib_a_second(shared: Connections, read: int, dropped: bool) -> None:
    """60 KiB in 60 s; one byte less is dropped."""
    one = InMemory()
    one.unread_bytes = 1 << 20
    shared.stall(one)
    one.unread_bytes -= read
    tick(shared, bounds.STALL_S)
    assert one.dropped is dropped


def test_a_closing_connection_whose_answer_was_read_is_gone_after_5_seconds(shared: Connections) -> None:
    """One that is not read yet is judged as any reader, and keeps its time."""
    read, unread = InMemory(), InMemory()
    unread.unread_bytes = 1 << 20
    for one in (read, unread):
        shared.closing[one] = 0
    tick(shared, bounds.CLOSE_S)
    assert (read.dropped, unread.dropped) == (True, False)
    assert unread in shared.stalled


def test_a_closing_connection_in_no_table_is_found(shared: Connections) -> None:
    """The sweep every 10 s sees it; 5 s later it is dropped."""
    one = InMemory()
    one.closing = True
    shared.enter(one, None, 10)
    tick(shared, bounds.SWEEP_S - 1)
    assert one not in shared.closing
    tick(shared, 1 + bounds.CLOSE_S)
    assert one.dropped


def of_alice(shared: Connections, unread_bytes: int) -> InMemory:
    """One of Alice's connections, which she does not read."""
    one = InMemory()
    shared.enter(one, Strangers(), 10)
    shared.identify(one, Identity(user="alice", role=Role.USER))
    one.unread_bytes = unread_bytes
    shared.stall(one)
    return one


def test_safety_a_user_leaves_128_mib_unread_and_no_more(shared: Connections) -> None:
    """The connection that has stalled longest goes first; what has gone does not count any more."""
    half = bounds.MAX_UNSENT_BYTES_OF_ONE // 2
    first, second = of_alice(shared, half), of_alice(shared, half)
    assert not first.dropped
    third = of_alice(shared, 1)
    assert (first.dropped, second.dropped, third.dropped) == (True, False, False)
    of_alice(shared, half - 1)
    assert not second.dropped


def test_what_was_read_counts_no_more(shared: Connections) -> None:
    """A reader that caught up leaves all of the bound to the next."""
    first = of_alice(shared, bounds.MAX_UNSENT_BYTES_OF_ONE)
    shared.unstall(first)
    second = of_alice(shared, bounds.MAX_UNSENT_BYTES_OF_ONE)
    assert not second.dropped


def test_for_want_of_descriptors_idle_ones_go_first_and_strangers_only_when_old(tmp_path: Path) -> None:
    """Two are needed: one is idle; the stranger is a second old in the second call only."""
    file, now_s = LogFile(tmp_path / "test.log"), [0.0]
    shared = Connections(open_log(file, "test"), descriptors=20_000, at_once=300, now_s=lambda: now_s[0])
    idle, stranger = InMemory(), InMemory()
    idle.stand(shared.idle)
    shared.enter(stranger, Strangers(), 10)
    assert shared.evict(2) == 1
    assert (idle.ended, stranger.ended) == (True, False)
    now_s[0] = bounds.STRANGER_GRACE_S
    assert shared.evict(2) == 1
    assert stranger.dropped
    file.close()


def test_what_goes_on_and_on_is_one_line_and_then_a_count(tmp_path: Path) -> None:
    """Three times within a minute: one line at once, one with `times: 2` after 60 s; then nothing more."""
    path = tmp_path / "test.log"
    file = LogFile(path)
    shared = Connections(open_log(file, "test"), descriptors=20_000, at_once=300, now_s=lambda: 0.0)
    for _ in range(3):
        shared.note("closed connections: it rains", "192.0.2.1")
    tick(shared, 3 * bounds.STREAK_S)
    file.close()
    lines = [line for line in path.read_text().splitlines() if "it rains" in line]
    assert len(lines) == 2
    assert '"times":2' in lines[1].replace(" ", "")


def test_listeners_are_woken_each_second_and_when_a_stranger_goes(shared: Connections) -> None:
    """They had stopped accepting for want of room."""
    woken: list[None] = []
    shared.freed.append(lambda: woken.append(None))
    tick(shared, 1)
    one = InMemory()
    shared.enter(one, Strangers(), 10)
    shared.leave(one)
    assert len(woken) == 2
