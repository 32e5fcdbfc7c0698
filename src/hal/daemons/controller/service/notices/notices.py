"""Sends messages about jobs that ask for them, beside the control loop: at least once, within bounds.

What was told of a job is a row beside it. A commit that changes such a job wakes this; the row of the job and what was
told before say what is to be told now, so nothing is lost if a controller dies: another one finds the same difference.
When all messages of a difference were sent or given up, that is stored. Only a leading controller does so; mail and
webhooks have a thread each, users take turns, and whoever's target does not answer waits longer each time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct

from hal.core.model import HALError, StoreError, UnreachableError
from hal.core.model.notification import Kind
from hal.daemons.controller.service.notices.messages import Message, messages_of, told_of
from hal.daemons.controller.service.notices.rules import address_of
from hal.daemons.controller.service.parts import Parts
from hal.runtime.interface import Lane
from hal.runtime.line_budget import BudgetedLogs
from hal.store import (
    EndedAttempt,
    EndFilter,
    JobRow,
    MarkRemoved,
    NoticeRow,
    Operation,
    ProgressJobs,
    PutNotices,
    Removed,
    Store,
)

LOOK_EVERY_MS: Final = 500
"""Jobs that change are looked at so often at most."""
LOOKED_AT_ONCE: Final = 100
"""Jobs in one look."""
MAX_WAITING: Final = 10_000
"""Messages that wait to be sent; jobs of further ones are looked at later."""
MAX_ATTEMPTS_A_LOOK: Final = 500
"""Ends of attempts of one job that are told at once."""
MAX_TRIES: Final = 6
FIRST_RETRY_MS: Final = 30_000
"""Doubled twice with each try: all of them take three hours."""
MAX_AGE_MS: Final = 24 * 3_600_000
"""What happened longer ago is not told any more."""
PAUSE_MS: Final = 10_000
LONGEST_PAUSE_MS: Final = 600_000
"""How long others go first after a target of a user did not answer; doubled each time."""
MAX_USERS: Final = 10_000
"""Above so many, users without a message in the last hour are forgotten."""
HOUR_MS: Final = 3_600_000
LONGEST_WAIT_MS: Final = 60_000


class NotificationsView(Struct, frozen=True, kw_only=True):
    """What this HAL sends, and how it goes; counts are since the controller was started."""

    mail: bool
    """It sends mail."""
    webhooks: bool
    """It posts to webhooks of some hosts."""
    sent: int
    waiting: int
    """Messages that are to be sent, or sent again."""
    dropped: int
    """Refused by their target, unanswered too often, too old, or beyond the rates of `[notifications]`."""
    last_error: str
    """Why the last one was dropped or is sent again; for operators, else empty."""


class _Told(Struct):
    """A job of which something is being told."""

    row: NoticeRow
    """What has been told then."""
    left: int
    """Messages that are neither sent nor given up."""
    again: bool = False
    """It has changed since."""


class _Try(NamedTuple):
    """A message that waits, ordered by when it is tried."""

    due_ms: int
    number: int
    tries: int
    since_ms: int
    message: Message


class _LaneQueue:
    """Messages that wait for one thread; users take turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Try]] = {}
        self._paused: dict[str, tuple[int, int]] = {}
        """By user, until when, and how long that was."""
        self.filled = asyncio.Event()
        self.size = 0

    def put(self, one: _Try) -> None:
        """Add one."""
        heapq.heappush(self._waiting.setdefault(one.message.user, []), one)
        self.size += 1
        self.filled.set()

    def take(self, now_ms: int) -> _Try | None:
        """The next that is due, of the user whose turn it is; None: none is."""
        for user, waiting in self._waiting.items():
            if waiting[0].due_ms <= now_ms and self._paused.get(user, (0, 0))[0] <= now_ms:
                found = heapq.heappop(waiting)
                del self._waiting[user]
                if waiting:
                    self._waiting[user] = waiting  # behind the others
                self.size -= 1
                return found
        return None

    def next_ms(self) -> int | None:
        """When one is due; None: none waits."""
        due = (max(some[0].due_ms, self._paused.get(user, (0, 0))[0]) for user, some in self._waiting.items())
        return min(due, default=None)

    def answered(self, user: str) -> None:
        """A target of that user answered."""
        self._paused.pop(user, None)

    def unanswered(self, user: str, now_ms: int) -> None:
        """It did not: others go first for a while."""
        pause_ms = min(max(self._paused.get(user, (0, 0))[1] * 2, PAUSE_MS), LONGEST_PAUSE_MS)
        self._paused[user] = (now_ms + pause_ms, pause_ms)


class Notices:
    """Of one controller."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._site = parts.notifications
        self._runtime = parts.runtime
        self._log = BudgetedLogs(parts.runtime.log, parts.runtime.monotonic_ms)
        self._watched: set[int] = set()
        """Jobs that notify somebody."""
        self._changed: dict[int, None] = {}
        """Those that may have changed, in that order."""
        self._wake = asyncio.Event()
        self._telling: dict[int, _Told] = {}
        self._done: dict[int, NoticeRow] = {}
        """What was told and is not stored yet, by job."""
        self._queues = {Kind.MAIL: _LaneQueue(), Kind.WEBHOOK: _LaneQueue()}
        self._of_user: dict[str, deque[int]] = {}
        self._of_all: deque[int] = deque()
        self._number = self._sent = self._dropped = 0
        self._last_error = ""

    @property
    def _on(self) -> bool:
        return bool(self._site.smtp or self._site.webhook_hosts)

    def view(self, *, errors: bool) -> NotificationsView:
        """What it sends, and how it goes."""
        return NotificationsView(
            mail=bool(self._site.smtp),
            webhooks=bool(self._site.webhook_hosts),
            sent=self._sent,
            waiting=sum(queue.size for queue in self._queues.values()),
            dropped=self._dropped,
            last_error=self._last_error if errors else "",
        )

    def committed(self, operations: Sequence[Operation]) -> None:
        """Look at what was committed; costs nothing where no job notifies anybody."""
        if not self._on:
            return
        for operation in operations:
            if isinstance(operation, PutNotices) and operation.new:
                self._watched.update(row.job for row in operation.rows)
            elif isinstance(operation, MarkRemoved) and operation.removed is Removed.JOB:
                self._watched.difference_update(operation.jobs)
            elif self._watched and isinstance(operation, ProgressJobs):
                for row in operation.rows:
                    if row.id in self._watched:
                        self._changed[row.id] = None
        if self._changed:
            self._wake.set()

    async def run(self) -> None:
        """Send, until cancelled."""
        if not self._on:
            return
        sending = [
            self._runtime.spawn_task(self._keep_sending(Kind.MAIL, Lane.MAIL), "send-mail"),
            self._runtime.spawn_task(self._keep_sending(Kind.WEBHOOK, Lane.WEBHOOK), "post-webhooks"),
        ]
        try:
            await self._load()
            while True:
                try:
                    await self._look()
                    await self._store_done()
                except StoreError as error:
                    self._runtime.log.warning("notifications wait for the store", reason=str(error))
                except UnreachableError:
                    return  # it stops, or leads no more
                await self._runtime.sleep(LOOK_EVERY_MS)
                if not (self._changed or self._done):
                    self._wake.clear()
                    timer = self._runtime.call_later(LONGEST_WAIT_MS, self._wake.set)
                    await self._wake.wait()
                    timer.cancel()
        finally:
            for task in sending:
                task.cancel()

    async def _load(self) -> None:
        """Which jobs notify somebody, and of which there may be more to tell."""
        for only_open in (False, True):
            after = 0
            while page := await self._parts.committer.read(partial(Store.noticed, after=after, only_open=only_open)):
                self._watched.update(page)
                if only_open:
                    self._changed.update(dict.fromkeys(page))
                after = page[-1]

    # ── what is to be told ────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self) -> None:
        waiting = sum(queue.size for queue in self._queues.values())
        jobs = list(self._changed)[:LOOKED_AT_ONCE] if waiting < MAX_WAITING else []
        if not jobs:
            return
        found = await self._parts.committer.read(partial(_read, jobs=jobs))
        for job in jobs:
            if job in self._done:
                continue  # what was read is older than what was told: looked at again when that is stored
            self._changed.pop(job, None)
            told = self._telling.get(job)
            if told is not None:
                told.again = True
            elif job not in found:
                self._watched.discard(job)
            else:
                self._tell(*found[job])

    def _tell(self, row: JobRow, before: NoticeRow, attempts: Sequence[EndedAttempt]) -> None:
        now_ms = self._parts.clock.now_ms()
        ended_seq = attempts[-1].sequence if attempts else before.ended_seq
        now = told_of(row, ended_seq)
        messages = list(messages_of(row, before, attempts, self._parts.plane.instance))
        told = self._telling[row.id] = _Told(now, len(messages), len(attempts) == MAX_ATTEMPTS_A_LOOK)
        for message in messages:
            self._enqueue(message, now_ms, row.end_ms or now_ms)
        if told.left == 0 and row.id in self._telling:
            self._settle(row.id, store=now != before and (bool(messages) or not now.open or ended_seq > 0))

    def _enqueue(self, message: Message, now_ms: int, since_ms: int) -> None:
        if now_ms - since_ms > MAX_AGE_MS:
            self._drop(message, "it happened more than a day ago")
        elif not self._within_rates(message.user, now_ms):
            self._drop(message, "the rate of messages is reached: user_hour or all_hour of [notifications]")
        else:
            self._number += 1
            self._queues[message.kind].put(_Try(now_ms, self._number, 0, since_ms, message))

    def _within_rates(self, user: str, now_ms: int) -> bool:
        """Count a message, if it is within the rates."""
        own = self._of_user.setdefault(user, deque())
        for counted in (own, self._of_all):
            while counted and counted[0] <= now_ms - HOUR_MS:
                counted.popleft()
        if len(own) >= self._site.user_hour or len(self._of_all) >= self._site.all_hour:
            return False
        own.append(now_ms)
        if len(self._of_user) > MAX_USERS:
            self._of_user = {name: of for name, of in self._of_user.items() if of}
        self._of_all.append(now_ms)
        return True

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep_sending(self, kind: Kind, lane: Lane) -> None:
        queue = self._queues[kind]
        while True:
            one = queue.take(self._parts.clock.now_ms())
            if one is None:
                queue.filled.clear()
                next_ms = queue.next_ms()
                wait_ms = LONGEST_WAIT_MS if next_ms is None else next_ms - self._parts.clock.now_ms()
                timer = self._runtime.call_later(min(max(wait_ms, 1), LONGEST_WAIT_MS), queue.filled.set)
                await queue.filled.wait()
                timer.cancel()
                continue
            await self._send(queue, one, lane)

    async def _send(self, queue: _LaneQueue, one: _Try, lane: Lane) -> None:
        message = one.message
        try:
            await self._runtime.run_blocking(partial(self._deliver, message), lane)
        except UnreachableError as error:
            now_ms = self._parts.clock.now_ms()
            queue.unanswered(message.user, now_ms)
            self._last_error = str(error)
            tries = one.tries + 1
            if tries >= MAX_TRIES or now_ms - one.since_ms > MAX_AGE_MS:
                self._drop(message, str(error))
            else:
                due_ms = now_ms + FIRST_RETRY_MS * 4 ** (tries - 1)
                queue.put(one._replace(due_ms=due_ms, tries=tries))
        except HALError as error:
            queue.answered(message.user)
            self._drop(message, str(error))
        else:
            queue.answered(message.user)
            self._sent += 1
            self._settled(message)

    def _deliver(self, message: Message) -> None:
        """Blocking."""
        if message.kind is Kind.WEBHOOK:
            from hal.runtime.webhook import post

            post(message.target, message.body, self._site.webhook_hosts, authorities=self._site.authorities)
            return
        from hal.runtime.mail import MailServer, send_mail

        host, _, port = self._site.smtp.rpartition(":")
        server = MailServer(
            host.strip("[]") or "127.0.0.1",
            int(port),
            self._site.smtp_security,
            self._site.sender,
            self._site.smtp_user,
            self._site.smtp_password_file,
            self._site.authorities,
        )
        domain = self._site.sender.rpartition("@")[2] or "localhost"
        headers = {"X-HAL-Job": str(message.job), "X-HAL-Id": message.id}
        to = address_of(message.target, self._site)
        send_mail(server, to, f"[HAL] {message.subject}", message.text, f"<{message.id}@{domain}>", headers)

    def _drop(self, message: Message, reason: str) -> None:
        self._dropped += 1
        self._last_error = reason
        self._log.of("").warning("a notification was dropped", job=message.job, kind=message.kind.value, reason=reason)
        self._settled(message)

    def _settled(self, message: Message) -> None:
        """A message was sent or given up."""
        told = self._telling.get(message.job)
        if told is not None:
            told.left -= 1
            if told.left == 0:
                self._settle(message.job, store=True)

    def _settle(self, job: int, *, store: bool) -> None:
        """All messages of a job were."""
        told = self._telling.pop(job)
        if store:
            self._done[job] = told.row
        if told.again:
            self._changed[job] = None
        self._wake.set()

    async def _store_done(self) -> None:
        """Store what was told."""
        if not self._done:
            return
        rows = tuple(self._done.values())
        await self._parts.loop.inbox.call(lambda _: self._parts.plane.add_operations(PutNotices(rows)))
        for row in rows:
            del self._done[row.job]


def _read(store: Store, jobs: Sequence[int]) -> dict[int, tuple[JobRow, NoticeRow, list[EndedAttempt]]]:
    """The rows of jobs, what was told of them, and ends of attempts that each task tells; removed ones are missing."""
    found = {}
    for job in jobs:
        row, notice = store.job(job), store.notice(job)
        if row is None or notice is None:
            continue
        attempts: list[EndedAttempt] = []
        if any(one.each_task for one in row.spec.notify) and row.spec.array is not None:
            page = store.ended(notice.ended_seq, EndFilter(job=job), last=store.last_end(), limit=MAX_ATTEMPTS_A_LOOK)
            attempts = list(page.rows)
        found[job] = (row, notice, attempts)
    return found
