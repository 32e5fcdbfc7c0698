"""The broker of a session: which tasks go to which slot, how many at once, and what becomes of those of a lost slot.

Pure: frames come in through methods, frames go out through outboxes, the time is an argument. The cost is per frame:
a block of a thousand short tasks is cut into a few batches, whose payload is a view into the block's.

A slot is sent work for a few milliseconds ahead, by the average run time of each function: short tasks by the hundred,
long ones singly. Tasks of a function that nobody has measured yet go singly, too. A slot that is late returns what
it has not begun as soon as another one has nothing to do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

from hal.core.model.errors import OverloadedError, SpecError
from hal.planes.sessions.blocks import ENDED, SENT, WAITING, Block, Run, TaskRange
from hal.planes.sessions.measures import Measures, numbers_of
from hal.planes.sessions.pools import Home, Homes, Pool
from hal.planes.sessions.slots import Slot
from hal.planes.sessions.submitters import MAX_OBJECT_BYTES, Ledger, Outbox, Queue, Submitter, drop_frames, urgency
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    MAX_BLOCK_TASKS,
    MAX_SLOTS_TOLD,
    SIZE_BYTES,
    SLOT_RETIRED,
    CancelTasks,
    DropObjects,
    MoveSlot,
    RecallTasks,
    RunTasks,
    SessionNumbers,
    ShapeNumbers,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksCancelled,
    TasksDone,
    TasksReceived,
    TasksReturned,
    TaskStatus,
)

WINDOW_TASKS: Final = 200_000
"""Tasks that a client may have unanswered."""
WINDOW_BYTES: Final = 256 << 20
"""Bytes of their blocks."""
BATCH_US: Final = 4_000.0
"""Work of one batch."""
LEAST_BATCH_US: Final = 100.0
"""Less work than this is not divided among slots: to hand a batch out and to take its results costs about as much."""
AHEAD_US: Final = BATCH_US + 1_000.0
"""A slot with less expected work than this is sent more: it has the next batch while the results of one travel."""
UNKNOWN_US: Final = AHEAD_US
"""Expected of a task of a function that was not measured yet: a slot is sent one, and nothing behind it."""
LEAST_US: Final = 0.5
"""Expected of any task."""
BATCH_BYTES: Final = 512 << 10
"""Of the arguments of one batch, unless a single task has more."""
PACE_WEIGHT: Final = 0.3
"""Of the newest batch in the average run time of its function."""
LATE_MS: Final = 3
"""A slot that has reported nothing for so long gives tasks back when another one has nothing to do."""
MAX_LOSSES: Final = 3
"""Workers that may be lost to a task before it is quarantined."""


class Broker:
    """The state of one session.

    Attributes:
        slots: by number.
        submitters: by number.
    """

    def __init__(
        self, shapes: Sequence[str] = (), *, window_tasks: int = WINDOW_TASKS, window_bytes: int = WINDOW_BYTES
    ) -> None:
        """
        Args:
            shapes: of its slots, beside that of the session itself.
        """
        self.slots: dict[int, Slot] = {}
        self.submitters: dict[int, Submitter] = {}
        self.window_tasks = window_tasks
        self.window_bytes = window_bytes
        self.tasks_done = 0
        self.measures = Measures()
        self.forget_client: Callable[[int], object] = lambda _number: None
        """Called with the number of a client that is gone: then, and once no slot has tasks of it any more."""
        self._unheard: dict[int, int] = {}
        """Runs that slots still have of clients that are gone, by number of the client."""
        self._lost: dict[int, Slot] = {}
        """Slots that are gone, and nobody knows why, with tasks that were lost to them."""
        self.ledger: Ledger | None = None
        """Of tasks that run at most once, whatever becomes of this broker."""
        self._pools = {shape: Pool(shape) for shape in ("", *shapes)}
        self._homeless = {pool: Pool(pool.shape) for pool in self._pools.values()}
        """Tasks with a key while there is no slot of their shape."""
        self._homes = Homes()
        self._keyed: dict[Slot, None] = {}
        """Slots for which tasks with a key wait."""
        self._numbers = 0
        self._runs = 0
        self._mean_us: dict[int, float] = {}
        """Average run time of a task by function."""

    # ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────

    def add_submitter(self, outbox: Outbox, worker: int = 0, *, number: int = 0) -> Submitter:
        """A client came.

        Args:
            worker: whose tasks it submits for; 0: it is a client of its own.
            number: that it had with an earlier broker; 0: it is new.
        """
        self._numbers = max(self._numbers, number)
        if not number:
            self._numbers += 1
            number = self._numbers
        submitter = Submitter(number, outbox, worker)
        submitter.served_us = min((one.served_us for one in self.submitters.values()), default=0.0)
        self.submitters[submitter.number] = submitter
        return submitter

    def remove_submitter(self, submitter: Submitter) -> None:
        """Forget a client that is gone, and its tasks; slots finish what they have begun, which nobody hears of."""
        del self.submitters[submitter.number]
        self.press(submitter, on=True)  # none of its tasks is handed out any more
        submitter.forget_waiting()
        for block in submitter.blocks.values():
            self._note_ended(block, block.left)
        self._homes.forget_user(submitter.number)
        for function in submitter.objects:
            self._mean_us.pop(function, None)
        for slot in self.slots.values():
            if known := slot.known & submitter.objects.keys():
                slot.known -= known
                for frame in drop_frames(known):
                    self._send(slot.outbox, frame)
        runs = chain.from_iterable(slot.runs.values() for slot in self.slots.values())
        if unheard := sum(run.block.submitter == submitter.number for run in runs):
            self._unheard[submitter.number] = unheard
        self.forget_client(submitter.number)

    def _note_unheard(self, run: Run) -> None:
        """A slot does not have a run any more; its client may be gone."""
        number = run.block.submitter
        if number in self._unheard:
            self._unheard[number] -= 1
            if not self._unheard[number]:
                del self._unheard[number]
                self.forget_client(number)

    def press(self, submitter: Submitter, *, on: bool) -> None:
        """Hand out no more of a client's tasks, or some again at the next `dispatch`."""
        if submitter.pressed != on:
            submitter.pressed = on
            for pool, queue in submitter.queues.items():
                pool.waiting_tasks += -queue.tasks if on else queue.tasks
                if not on and pool.slot is not None:
                    self._keyed[pool.slot] = None

    def store_object(self, submitter: Submitter, frame: StoreObject) -> None:
        """Keep an object's next piece.

        Raises:
            SpecError: it is not an id of this client.
            OverloadedError: its objects are too large.
        """
        if frame.ref >> 32 != submitter.number:
            raise SpecError(f"object {frame.ref} does not belong to client {submitter.number}")
        pieces = submitter.objects.get(frame.ref)
        if pieces is None or not pieces[-1].more:
            self._drop(submitter, frame.ref)
            pieces = submitter.objects[frame.ref] = []
        submitter.object_bytes += len(frame.data)
        if submitter.object_bytes > MAX_OBJECT_BYTES:
            raise OverloadedError(f"the objects of client {submitter.number} have more than {MAX_OBJECT_BYTES} bytes")
        pieces.append(frame)

    def drop_objects(self, submitter: Submitter, frame: DropObjects) -> None:
        """Forget objects."""
        for ref in frame.refs:
            self._drop(submitter, ref)

    def _drop(self, submitter: Submitter, ref: int) -> None:
        pieces = submitter.objects.pop(ref, None)
        if pieces is None:
            return
        self._mean_us.pop(ref, None)
        submitter.object_bytes -= sum(len(piece.data) for piece in pieces)
        self._mean_us.pop(ref, None)
        for slot in self.slots.values():
            if ref in slot.known:
                slot.known.remove(ref)
                self._send(slot.outbox, DropObjects(refs=(ref,)))

    def submit(self, submitter: Submitter, frame: SubmitTasks, now_ms: int) -> None:
        """Take a block.

        Raises:
            SpecError: it is malformed, or names an object that is not here.
            OverloadedError: the client exceeds its window.
        """
        pool = self._pools.get(frame.shape)
        if pool is None:
            raise SpecError(f"the session has no slots of shape '{frame.shape}'")
        try:
            block = Block(submitter.number, frame, now_ms, pool)
        except ValueError as error:
            raise SpecError(f"a block of tasks is malformed: {error}") from None
        if frame.first in submitter.blocks:
            raise SpecError(f"there is a block {frame.first} already")
        for ref in (frame.function, *frame.needs):
            pieces = submitter.objects.get(ref)
            if pieces is None or pieces[-1].more:
                raise SpecError(f"tasks need object {ref}, which client {submitter.number} has not sent")
        block.name = submitter.name_of(frame.function)
        tasks, size = submitter.unanswered + block.count, submitter.unanswered_bytes + len(frame.payload)
        if tasks > 2 * self.window_tasks or size > 2 * self.window_bytes:
            raise OverloadedError(f"client {submitter.number} has more than its window unanswered")
        submitter.unanswered, submitter.unanswered_bytes = tasks, size
        submitter.blocks[frame.first] = block
        self._note_block(block)
        submitter.acknowledged = False
        if not submitter.waiting_tasks:  # it has waited for nothing until now: no turns are owed to it
            active = [one.served_us for one in self.submitters.values() if one.waiting_tasks]
            submitter.served_us = max(submitter.served_us, min(active, default=0.0))
        self._wait(submitter, TaskRange(block, 0, block.count))
        self.dispatch(now_ms)

    def restore_block(
        self,
        submitter: Submitter,
        frame: SubmitTasks,
        ended: list[tuple[int, int]],
        now_ms: int,
        begun: frozenset[int] = frozenset(),
    ) -> None:
        """Take a block of an earlier broker, in which some tasks have ended.

        Args:
            ended: index and number of these.
            begun: indexes of tasks that may have begun and may not begin again.
        """
        block = Block(submitter.number, frame, now_ms, self._pools.get(frame.shape) or self._pools[""])
        block.name = submitter.name_of(frame.function)
        for index in begun:
            block.state[index] = SENT
        for index, count in ended:
            block.mark(index, min(index + count, block.count), ENDED)
        block.left = block.count - block.state.count(ENDED)
        if not block.left:
            return
        submitter.blocks[frame.first] = block
        self._note_block(block)
        submitter.unanswered += block.left
        submitter.unanswered_bytes += len(frame.payload)
        for start, end in block.ranges(WAITING):
            self._wait(submitter, TaskRange(block, start, end))
        for start, end in block.ranges(SENT):
            for index in range(start, end):
                reason = "its broker ended while it may have run"
                self._fail(None, submitter, block, index, TaskStatus.LOST, reason, now_ms)
        self.dispatch(now_ms)

    def has_object(self, submitter: Submitter, ref: int) -> bool:
        """Whether all of an object is here."""
        pieces = submitter.objects.get(ref)
        return pieces is not None and not pieces[-1].more

    def drop_incomplete(self, submitter: Submitter) -> list[int]:
        """Forget objects of which the last piece has not come; they are sent again. Returns their ids."""
        refs = [ref for ref, pieces in submitter.objects.items() if pieces[-1].more]
        for ref in refs:
            self._drop(submitter, ref)
        return refs

    def acknowledge(self, submitter: Submitter) -> None:
        """Confirm what was received, if nothing was sent since."""
        if not submitter.acknowledged:
            submitter.acknowledged = True
            self._send(submitter.outbox, TasksReceived())

    def cancel(self, submitter: Submitter, frame: CancelTasks) -> None:
        """End tasks that wait. What a slot has, it runs."""
        for first, count in frame.ranges:
            cut: dict[Home, dict[TaskRange, list[TaskRange]]] = {}
            for pool, queue in list(submitter.queues.items()):
                before = queue.tasks
                for key, ranges in list(queue.ranges.items()):
                    kept = []
                    for tasks in ranges:
                        parts = self._cut(submitter, queue, tasks, first, first + count)
                        kept += parts
                        if parts != [tasks] and (home := tasks.block.home) is not None:
                            cut.setdefault(home, {})[tasks] = parts
                    queue.replace(key, kept)
                submitter.waiting_tasks -= before - queue.tasks
                if not submitter.pressed:
                    pool.waiting_tasks -= before - queue.tasks
                if not queue.ranges:
                    del submitter.queues[pool]
            for home, parts_of in cut.items():
                home.waiting = OrderedDict.fromkeys(
                    part for tasks in home.waiting for part in parts_of.get(tasks, (tasks,))
                )
        self._send(submitter.outbox, TasksCancelled())

    def _cut(self, submitter: Submitter, queue: Queue, tasks: TaskRange, first: int, end: int) -> list[TaskRange]:
        """Cancel what is in both ranges; returns what remains."""
        block, base = tasks.block, tasks.block.frame.first
        low, high = max(tasks.start, first - base), min(tasks.end, end - base)
        if low >= high:
            return [tasks]
        queue.tasks -= high - low
        self.measures.note_cancelled(high - low)
        self._end(submitter, block, low, high, bytes([TaskStatus.CANCELLED]) * (high - low))
        parts = (TaskRange(block, tasks.start, low), TaskRange(block, high, tasks.end))
        return [part for part in parts if part.start < part.end]

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_slot(
        self, name: str, outbox: Outbox, now_ms: int, task: int = 0, *, shape: str = "", worker: int = 0
    ) -> Slot:
        """A worker came.

        Args:
            task: of the session's job, that it is.
            shape: of its slot.
            worker: number of the first slot of its process; 0: this is the first.
        Raises:
            SpecError: the session has no such slots.
        """
        pool = self._pools.get(shape)
        if pool is None:
            raise SpecError(f"the session has no slots of shape '{shape}'")
        self._numbers += 1
        slot = Slot(self._numbers, name, outbox, task, pool, worker)
        slot.heard_ms = slot.since_ms = now_ms
        self.slots[slot.number] = slot
        pool.hungry[slot] = None
        pool.note_load(slot)
        self._share_keys(slot)
        return slot

    def remove_slot(self, slot: Slot, now_ms: int, *, explained: bool = False) -> bool:
        """A worker is gone: what it had runs elsewhere, and what it may have begun counts the loss.

        Args:
            explained: `explain_death` follows.
        Returns: whether tasks wait for that.
        """
        del self.slots[slot.number]
        slot.pool.remove_slot(slot)
        self._move_out(slot)
        running = next((run for run in slot.runs.values() if not run.waits), None)
        for run in reversed(list(slot.runs.values())):
            # The results of the tasks before may be lost, so what may run once counts as begun in any case.
            began = run is running or run.waits or run.block.frame.once
            submitter = self.submitters.get(run.block.submitter)
            if submitter is not None:
                self._replay(slot, submitter, run, began=began)
        self.measures.lost_workers += bool(slot.runs)
        for run in slot.runs.values():
            self._note_unheard(run)
        slot.runs.clear()
        if slot.mourned:
            self._lost[slot.number] = slot
            if slot.death is not None or not explained:
                self.explain_death(slot.number, slot.name, slot.death or "", now_ms)
        self.dispatch(now_ms)
        return bool(slot.mourned)

    def explain_death(self, number: int, name: str, death: str, now_ms: int) -> None:
        """It is known how a worker ended, or never will be: answer the tasks that were lost to it.

        Args:
            number, name: of its slot; one that was explained is ignored.
            death: how it ended, and what it has left behind in further lines; '': nobody knows.
        """
        slot = self._lost.get(number) or self.slots.get(number)
        if slot is None or slot.name != name:
            return
        if self._lost.pop(number, None) is None:
            slot.death = death  # that it is gone is noticed later
            return
        how, _, left = death.partition("\n")
        for block, index, status, text in slot.mourned:
            submitter = self.submitters.get(block.submitter)
            if submitter is not None:
                reason = text + (f"; {how}" if how else "") + (f"\n{left}" if left else "")
                self._fail(slot, submitter, block, index, status, reason, now_ms)
        slot.mourned.clear()

    def _replay(self, slot: Slot, submitter: Submitter, run: Run, *, began: bool) -> None:
        """Let the tasks of a lost worker's run wait again; those of the run that it had begun one by one. What does not
        run again is mourned."""
        block, start = run.block, run.start + run.done
        if not began:
            block.mark(start, run.end, WAITING)
            self._wait(submitter, TaskRange(block, start, run.end), first=True)
            return
        for index in range(run.end - 1, start - 1, -1):
            block.losses[index] += not slot.excused
            if block.frame.once:
                slot.mourned.append((block, index, TaskStatus.LOST, "its worker ended while it may have run"))
            elif block.losses[index] >= MAX_LOSSES:
                text = f"{block.losses[index]} workers ended while it ran; it is not run again"
                slot.mourned.append((block, index, TaskStatus.QUARANTINED, text))
            else:
                block.state[index] = WAITING
                self._wait(submitter, TaskRange(block, index, index + 1), first=True)

    def finish(self, slot: Slot, frame: TasksDone, now_ms: int) -> None:
        """Pass results on.

        Raises:
            SpecError: it reports what it does not have.
        """
        run = slot.runs.get(frame.run)
        count = len(frame.statuses)
        whole = len(frame.sizes) == count * SIZE_BYTES
        if run is None or not count or not whole or frame.index != run.done or run.start + run.done + count > run.end:
            raise SpecError(f"worker {slot.name} reports tasks of run {frame.run} that it does not have")
        block, start = run.block, run.start + run.done
        self._count(slot, run, count, frame.took_us)
        slot.heard_ms = now_ms
        slot.late = False
        slot.tasks_done += count
        self.tasks_done += count
        self.measures.note_done(slot, block, start, frame, now_ms)
        if TaskStatus.TIMED_OUT in frame.statuses:
            self._excuse_others(slot)
        submitter = self.submitters.get(block.submitter)
        if submitter is not None:
            if block.frame.attempts > 1 and frame.statuses.count(TaskStatus.FAILED):
                self._end_or_repeat(submitter, block, start, frame)
            else:
                self._end(submitter, block, start, start + count, frame.statuses, frame.sizes, frame.payload)
        self._settle(slot, run)
        self.dispatch(now_ms)

    def _excuse_others(self, slot: Slot) -> None:
        """The worker of a slot ends itself, since a task of it ran for too long: tasks of its other threads are not
        the reason."""
        for other in self.slots.values():
            if other.worker == slot.worker and other is not slot:
                other.excused = True

    def _count(self, slot: Slot, run: Run, count: int, took_us: int) -> None:
        function = run.block.frame.function
        took = max(took_us / count, LEAST_US)
        mean = self._mean_us.get(function)
        if run.block.submitter in self.submitters:
            self._mean_us[function] = took if mean is None else mean + PACE_WEIGHT * (took - mean)
        left = run.end - run.start - run.done
        share = run.expected_us * count / left
        run.expected_us -= share
        slot.expected_us -= share
        slot.busy_us += took_us
        run.done += count

    def _settle(self, slot: Slot, run: Run) -> None:
        """Forget a run of which all has ended, and see whether its slot wants more."""
        if run.start + run.done >= run.end:
            slot.expected_us -= run.expected_us
            del slot.runs[run.number]
            if self._unheard:
                self._note_unheard(run)
            if slot.idle:
                slot.expected_us = 0.0
        self._feed(slot)

    def _feed(self, slot: Slot) -> None:
        """A slot has reported: it is sent more if it has little, or leaves if it has nothing and is to leave."""
        slot.pool.note_load(slot)
        if slot.leaving:
            if not slot.runs and not slot.recalling:
                self._send(slot.outbox, slot.moves or Goodbye(code=SLOT_RETIRED, reason="it gives its place back"))
        elif slot.expected_us < AHEAD_US and not slot.recalling and not slot.late:
            slot.pool.hungry[slot] = None

    def _end_or_repeat(self, submitter: Submitter, block: Block, start: int, frame: TasksDone) -> None:
        """As `_end`; but tasks that failed and may run again wait again."""
        sizes = memoryview(frame.sizes).cast("I")
        at = begun = bytes_at = bytes_begun = 0
        for at, status in enumerate(frame.statuses):
            index = start + at
            size = sizes[at]
            if status == TaskStatus.FAILED:
                block.failures[index] += 1
                if block.failures[index] < block.frame.attempts:
                    self._end_part(submitter, block, start, frame, begun, at, bytes_begun, bytes_at)
                    begun, bytes_begun = at + 1, bytes_at + size
                    block.state[index] = WAITING
                    self._wait(submitter, TaskRange(block, index, index + 1))
            bytes_at += size
        self._end_part(submitter, block, start, frame, begun, len(frame.statuses), bytes_begun, bytes_at)

    def _end_part(
        self,
        submitter: Submitter,
        block: Block,
        start: int,
        frame: TasksDone,
        begun: int,
        end: int,
        bytes_begun: int,
        bytes_end: int,
    ) -> None:
        if begun < end:
            self._end(
                submitter,
                block,
                start + begun,
                start + end,
                frame.statuses[begun:end],
                frame.sizes[begun * SIZE_BYTES : end * SIZE_BYTES],
                frame.payload[bytes_begun:bytes_end],
            )

    def return_tasks(self, slot: Slot, frame: TasksReturned, now_ms: int) -> None:
        """Tasks that a slot has not begun wait again, before all others.

        Raises:
            SpecError: it does not have them.
        """
        if not frame.run:
            slot.recalling = False
            slot.late = not slot.idle
            if slot.leaving:
                self._move_out(slot)
            self._feed(slot)
            self.dispatch(now_ms)
            return
        run = slot.runs.get(frame.run)
        if run is None or not run.done <= frame.index <= run.end - run.start:
            raise SpecError(f"worker {slot.name} returns tasks of run {frame.run} that it does not have")
        start, end = run.start + frame.index, run.end
        if start < end:
            share = run.expected_us * (end - start) / (end - run.start - run.done)
            run.expected_us -= share
            slot.expected_us -= share
            run.end = start
            run.block.mark(start, end, WAITING)
            if run.fresh and start == run.start and run.block.home is not None:
                self._homes.note_begun(run.block.home, begun=False)
            submitter = self.submitters.get(run.block.submitter)
            if submitter is not None:
                self._wait(submitter, TaskRange(run.block, start, end), first=True)
        self._settle(slot, run)

    def note_waiting(self, slot: Slot, number: int, now_ms: int, *, waits: bool) -> None:
        """The task of a run that has begun waits for others, or goes on.

        Raises:
            SpecError: the slot does not have that run.
        """
        run = slot.runs.get(number)
        if run is None:
            raise SpecError(f"worker {slot.name} waits in run {number} that it does not have")
        run.waits = waits
        slot.heard_ms = now_ms
        slot.late = False
        slot.expected_us -= run.expected_us
        run.expected_us = 0.0 if waits else UNKNOWN_US
        slot.expected_us += run.expected_us
        if slot.expected_us >= AHEAD_US:
            slot.pool.hungry.pop(slot, None)
        self._feed(slot)
        self.dispatch(now_ms)

    def recall_late(self, now_ms: int) -> bool:
        """Ask slots that are late for what they have not begun, if others have nothing to do; returns whether to look
        again in a few milliseconds."""
        again = False
        for pool in self._pools.values():
            for slot in pool.laden if pool.has_idle_slot else ():
                if slot.recalling:
                    continue
                again = True
                if now_ms - slot.heard_ms >= LATE_MS:
                    slot.recalling = True
                    pool.hungry.pop(slot, None)
                    self._send(slot.outbox, RecallTasks())
        return again

    @property
    def idle_beside_work(self) -> bool:
        """Whether a slot has nothing to do while another one has more than it runs. O(shapes): it is asked after each
        frame."""
        return any(pool.laden and pool.has_idle_slot for pool in self._pools.values())

    def retire(self, keep: int, shape: str = "") -> None:
        """Of all slots of a shape but `keep` tell those to leave that have no task, those first that leave first
        anyway. The slots of one process leave together."""
        pool = self._pools.get(shape)
        here = sum(slot.pool is pool and not slot.leaving for slot in self.slots.values())
        self._send_away(here - keep, pool)

    def move(self, count: int, shape: str, shard: int) -> None:
        """Tell so many slots of a shape to go to another broker of the session, as `retire` does it."""
        self._send_away(count, self._pools.get(shape), MoveSlot(shard=shard))

    def _send_away(self, count: int, pool: Pool | None, moves: MoveSlot | None = None) -> None:
        workers: dict[int, list[Slot]] = {}
        for slot in self.slots.values():
            if slot.pool is pool and not slot.leaving:
                workers.setdefault(slot.worker, []).append(slot)
        idle = [slots for slots in workers.values() if not any(slot.runs or slot.keys for slot in slots)]
        for slots in sorted(idle, key=_task_of_first, reverse=True):
            if count < len(slots):
                break
            count -= len(slots)
            for slot in slots:
                slot.moves = moves
                self.leave(slot)

    def leave(self, slot: Slot) -> None:
        """Send a slot nothing more; it leaves when it has reported what it has begun."""
        if slot.leaving:
            return
        slot.leaving = True
        slot.pool.hungry.pop(slot, None)
        if slot.held_tasks > 1 and not slot.recalling:
            slot.recalling = True
            self._send(slot.outbox, RecallTasks())
        if not slot.recalling:
            self._move_out(slot)
        self._feed(slot)

    def numbers(self, now_ms: int, uptime_ms: int, *, each: bool = False) -> SessionNumbers:
        """How the session goes. O(slots + clients)."""
        slots = self.slots.values()
        return SessionNumbers(
            uptime_ms=uptime_ms,
            clients=sum(not (one.worker or one.only_looks) for one in self.submitters.values()),
            waiting=sum(one.waiting_tasks for one in self.submitters.values()),
            unanswered=sum(one.unanswered for one in self.submitters.values()),
            done=self.tasks_done,
            busy=sum(bool(slot.runs) for slot in slots),
            slots=len(slots),
            latencies=tuple(self.measures.latencies.counts),
            latency_ms=self.measures.latencies.sum_ms,
            ended=tuple(self.measures.ended),
            retried=self.measures.retried,
            lost_workers=self.measures.lost_workers,
            each=tuple(numbers_of(slot, now_ms) for slot in islice(slots, MAX_SLOTS_TOLD)) if each else (),
            functions=self.measures.functions() if each else (),
            tags=self.measures.tags() if each else (),
            seconds=self.measures.seconds.told(now_ms) if each else (),
            minutes=self.measures.minutes.told(now_ms) if each else (),
            shapes=self._shape_numbers(),
        )

    # ── handing out ───────────────────────────────────────────────────────────────────────────────────────────────

    def dispatch(self, now_ms: int) -> None:
        """Send waiting tasks to the slots that want some."""
        if self._keyed:
            self._dispatch_keyed(now_ms)
        for pool in self._pools.values():
            hungry = pool.hungry
            while hungry and pool.waiting_tasks:
                slot = min(hungry, key=_expected_us) if len(hungry) <= 16 else next(iter(hungry))
                self._send_batch(slot, pool, self._next_submitter(pool), now_ms)

    def _dispatch_keyed(self, now_ms: int) -> None:
        """Send tasks whose key binds them to a slot; they take turns with the others that are as urgent."""
        for slot in list(self._keyed):
            while slot in slot.pool.hungry and slot.own.waiting_tasks:
                pool, submitter = slot.own, self._next_submitter(slot.own)
                if slot.pool.waiting_tasks:
                    other = self._next_submitter(slot.pool)
                    mine, theirs = _urgency(submitter, pool), _urgency(other, slot.pool)
                    if theirs > mine or (theirs == mine and not slot.keyed_turn):
                        pool, submitter = slot.pool, other
                slot.keyed_turn = pool is not slot.own
                self._send_batch(slot, pool, submitter, now_ms)
            if not slot.own.waiting_tasks:
                del self._keyed[slot]

    def _next_submitter(self, pool: Pool) -> Submitter:
        """The client with tasks for a pool for which the least work was handed out; tasks of tasks come first, the
        deepest of them."""
        if len(self.submitters) == 1:
            return next(iter(self.submitters.values()))
        waiting = (one for one in self.submitters.values() if pool in one.queues and not one.pressed)
        return min(waiting, key=partial(_turn, pool))

    def _send_batch(self, slot: Slot, pool: Pool, submitter: Submitter, now_ms: int) -> None:
        tasks = submitter.front(pool)
        block, start = tasks.block, tasks.start
        frame = block.frame
        mean = self._mean_us.get(frame.function)
        if mean is None:
            most, each = 1, UNKNOWN_US
        else:
            fair = max(-(-pool.waiting_tasks // (len(pool.hungry) or 1)), int(LEAST_BATCH_US / mean))
            most, each = max(1, min(int(BATCH_US / mean), fair, MAX_BLOCK_TASKS)), mean
        if block.losses[start]:  # alone, so that it is known which task a worker was lost to
            most = 1
        end = block.fitting(start, min(tasks.end, start + most), BATCH_BYTES)
        submitter.take(pool, tasks, end)
        count = end - start
        pool.waiting_tasks -= count
        expected = each * count
        submitter.served_us += expected
        self._runs += 1
        run = Run(self._runs, block, start, end, expected, now_ms)
        block.mark(start, end, SENT)
        if slot.idle:
            slot.heard_ms = now_ms
        slot.runs[run.number] = run
        slot.pool.note_load(slot)
        slot.expected_us += expected
        if slot.expected_us >= AHEAD_US:
            del slot.pool.hungry[slot]
        else:
            slot.pool.hungry.move_to_end(slot)
        if block.home is not None and not block.home.begun:
            self._homes.note_begun(block.home, begun=True)
            run.fresh = True
        for ref in (frame.function, *frame.needs):
            if ref not in slot.known:
                slot.known.add(ref)
                for piece in submitter.objects.get(ref, ()):
                    self._send(slot.outbox, piece)
        told = RunTasks(
            run=run.number,
            function=frame.function,
            sizes=block.sizes_of(start, end),
            payload=block.payload_of(start, end),
            timeout_ms=frame.timeout_ms,
            depth=frame.depth,
            key=frame.key,
            fresh=run.fresh,
        )
        if frame.once and self.ledger is not None:
            self.ledger.hand_out(submitter, block, start, end, partial(self._send, slot.outbox, told))
        else:
            self._send(slot.outbox, told)

    # ── tasks with a key ──────────────────────────────────────────────────────────────────────────────────────────

    def _pool_of(self, home: Home) -> Pool:
        """Where tasks of a key wait: for its slot, which is chosen if there is none."""
        if home.slot is None:
            slots = [slot for slot in self.slots.values() if slot.pool is home.pool and not slot.leaving]
            if not slots:
                return self._homeless[home.pool]
            self._homes.settle(home, min(slots, key=_keys))
        assert home.slot is not None
        self._keyed[home.slot] = None
        return home.slot.own

    def _move_out(self, slot: Slot) -> None:
        """A slot is gone, or leaves: the tasks of its keys wait for others."""
        self._homes.move_out(slot)
        self._keyed.pop(slot, None)
        self._wait_again(slot.own)

    def _share_keys(self, slot: Slot) -> None:
        """A slot came: keys without one get it, and others may that have no state anywhere yet. O(slots + these)."""
        pool = slot.pool
        for submitter in self.submitters.values():
            for tasks in submitter.waiting_for(self._homeless[pool]):
                home = tasks.block.home
                assert home is not None
                if home.slot is None:
                    self._homes.settle(home, slot)
                self._move(submitter, tasks, self._homeless[pool])
        slots = [one for one in self.slots.values() if one.pool is pool and not one.leaving]
        for home, former in self._homes.make_room(slots) if len(slots) > 1 else ():
            if home.waiting:
                self._homes.settle(home, slot)
            for tasks in list(home.waiting):
                self._move(self.submitters[tasks.block.submitter], tasks, former.own)

    def _wait_again(self, pool: Pool) -> None:
        for submitter in self.submitters.values():
            for tasks in submitter.waiting_for(pool):
                self._move(submitter, tasks, pool)

    def _move(self, submitter: Submitter, tasks: TaskRange, pool: Pool) -> None:
        """Tasks that waited for a pool wait where their key is at home now."""
        submitter.remove(pool, tasks)
        if not submitter.pressed:
            pool.waiting_tasks -= tasks.end - tasks.start
        self._wait_at(submitter, tasks)

    def _note_block(self, block: Block) -> None:
        """So many tasks have not ended."""
        key = block.frame.key
        if not key:
            block.pool.unanswered += block.left
            return
        home = block.home = self._homes.use(block.pool, key, block.submitter)
        if not home.tasks:
            block.pool.busy_keys += 1
        home.tasks += block.left

    def _note_ended(self, block: Block, count: int) -> None:
        home = block.home
        if home is None:
            block.pool.unanswered -= count
        else:
            home.tasks -= count
            if count and not home.tasks:
                block.pool.busy_keys -= 1

    def _shape_numbers(self) -> tuple[ShapeNumbers, ...]:
        here = dict.fromkeys(self._pools.values(), 0)
        bound = dict(here)
        for slot in self.slots.values():
            here[slot.pool] += 1
            bound[slot.pool] += bool(slot.keys)
        return tuple(
            ShapeNumbers(shape=pool.shape, wanted=max(pool.unanswered + pool.busy_keys, bound[pool]), slots=slots)
            for pool, slots in here.items()
        )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self, submitter: Submitter, tasks: TaskRange, *, first: bool = False) -> None:
        self._wait_at(submitter, tasks, first=first)
        if self.ledger is not None and tasks.block.frame.once:
            self.ledger.take_back(submitter, tasks)

    def _wait_at(self, submitter: Submitter, tasks: TaskRange, *, first: bool = False) -> None:
        home = tasks.block.home
        pool = tasks.block.pool if home is None else self._pool_of(home)
        submitter.add(tasks, pool, first=first)
        if not submitter.pressed:
            pool.waiting_tasks += tasks.end - tasks.start

    def _fail(
        self,
        slot: Slot | None,
        submitter: Submitter,
        block: Block,
        index: int,
        status: TaskStatus,
        reason: str,
        now_ms: int,
    ) -> None:
        text = reason.encode()
        self.measures.note_lost(slot, block, index, status, text, now_ms)
        self._end(submitter, block, index, index + 1, bytes([status]), len(text).to_bytes(SIZE_BYTES, "little"), text)

    def _end(
        self,
        submitter: Submitter,
        block: Block,
        start: int,
        end: int,
        statuses: bytes,
        sizes: bytes = b"",
        payload: bytes = b"",
    ) -> None:
        """Answer tasks; without sizes, their payloads are empty."""
        block.mark(start, end, ENDED)
        block.left -= end - start
        self._note_ended(block, end - start)
        submitter.unanswered -= end - start
        if not block.left:
            del submitter.blocks[block.frame.first]
            submitter.unanswered_bytes -= len(block.frame.payload)
        submitter.acknowledged = True
        self._send(
            submitter.outbox,
            TaskResults(
                block=block.frame.first,
                index=start,
                statuses=statuses,
                sizes=sizes or bytes(SIZE_BYTES * (end - start)),
                payload=payload,
            ),
        )

    def _send(self, outbox: Outbox, frame: Frame) -> None:
        outbox.send_nowait(frame)


def _expected_us(slot: Slot) -> float:
    return slot.expected_us


def _task_of_first(slots: list[Slot]) -> int:
    return slots[0].task


def _keys(slot: Slot) -> tuple[int, float]:
    return slot.keys, slot.expected_us


def _urgency(submitter: Submitter, pool: Pool) -> int:
    return urgency(submitter.front(pool).block.frame)


def _turn(pool: Pool, submitter: Submitter) -> tuple[int, float]:
    return -submitter.front(pool).block.frame.depth, submitter.served_us
