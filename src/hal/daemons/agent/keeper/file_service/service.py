"""What the file service does when the agent asks: have a step's directory ready, deliver and remove it.

A question is answered when the work is done, or after the agent's patience with `waiting`, and comes again. The work
continues meanwhile, and is done once however often it is asked about: a directory that is there is ready, one that is
gone was delivered. What fails for now (the controller is restarted, a disk is full) is tried again until the agent
gives up; what fails for good is refused.

So that a step need not wait for its files to be copied, a spare copy of what was used lately is kept ready; it is made
after the step that used the last one has begun. The agent gives it to a step itself, by a rename, and reports that
afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model import HALError, NotFoundError, OverloadedError, StepId, TimedOutError, UnreachableError
from hal.core.model.bundle import CollectWhen
from hal.core.model.gate_protocol import GateAnswer, GateVerdictWord
from hal.daemons.agent.file_orders import FilesAsk, FilesRequest
from hal.daemons.agent.keeper.file_service.bundle_cache import FETCH_TRIES, BundleCache
from hal.daemons.agent.keeper.file_service.controller_link import ControllerLink
from hal.daemons.agent.keeper.file_service.places import ready_name
from hal.daemons.agent.keeper.file_service.trees import Trees
from hal.daemons.agent.secret_files import Account, account_of
from hal.runtime.interface import Lane, Runtime

AGAIN_MS: Final = (100, 5_000)
"""First and longest pause before what failed for now is tried again; it doubles."""
WORK_KEPT_MS: Final = 600_000
"""What the agent has not asked about for so long is given up."""
MAX_WORK: Final = 10_000
"""Steps that are worked for at once."""
MAX_SPARES: Final = 16
"""Copies that are kept ready, of different bundles or users."""
MAX_SPARE_BYTES: Final = 256 << 20
"""Of longer bundles no copy is kept ready."""
SPARE_KEPT_MS: Final = 1_800_000
"""How long a copy is kept that nobody uses."""
SPARE_PAUSE_MS: Final = 100
"""A copy is made this long after the last one was used: the step begins first."""
KEEP_ACCOUNT_MS: Final = 300_000
"""How long it is relied on that a user has an account."""
MAX_ACCOUNTS: Final = 10_000
"""Users whose account is remembered."""
AGAIN_ANSWER_MS: Final = 100
"""When the agent asks again after `waiting`."""

READY: Final = GateAnswer(state=GateVerdictWord.READY)
FOR_NOW: Final = (UnreachableError, TimedOutError, OverloadedError)
"""What may pass."""


class _Spare(NamedTuple):
    tree: Path
    """The agent may have taken it."""
    used_ms: int


class _Work:
    """Something that is done for a step."""

    def __init__(self) -> None:
        self.note = ""
        """How far it has come, for people."""
        self.task: asyncio.Task[None] | None = None
        self.asked_ms = 0
        """When the agent asked last."""


class FileService:
    """Of one node."""

    def __init__(
        self, runtime: Runtime, trees: Trees, cache: BundleCache, link: ControllerLink, *, each_as_itself: bool
    ) -> None:
        self._runtime = runtime
        self._trees = trees
        self._cache = cache
        self._link = link
        self._each_as_itself = each_as_itself
        self._work: dict[tuple[FilesAsk, StepId], _Work] = {}
        self._spares: dict[tuple[str, str], _Spare] = {}
        """By user and bundle; longest unused first."""
        self._sparing: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._accounts: dict[str, tuple[int, Account]] = {}
        """By user: when each was looked up, and what was found; oldest first."""

    @property
    def busy(self) -> bool:
        """Whether it works for a step."""
        return bool(self._work)

    async def answer(self, request: FilesRequest) -> GateAnswer:
        """Do what the agent asks."""
        if request.ask is FilesAsk.DROP:
            for name in request.names:
                self._drop(name)
            return READY
        if request.step is None:
            return GateAnswer(state=GateVerdictWord.REFUSED, reason="no step is named")
        if request.ask is FilesAsk.TAKEN:
            self._renew_spare((request.user, request.order.ship), request.step)
            return READY
        key = (request.ask, request.step)
        work = self._work.get(key)
        if work is None:
            if len(self._work) >= MAX_WORK:
                return _waiting(f"{MAX_WORK} steps wait for their files")
            work = self._work[key] = _Work()
            do = self._stage if request.ask is FilesAsk.STAGE else self._collect
            work.task = asyncio.ensure_future(self._until_done(partial(do, request.step, request, work), work))
        assert work.task is not None
        work.asked_ms = self._runtime.monotonic_ms()
        done, _ = await asyncio.wait((work.task,), timeout=request.patience_ms / 1000)
        if not done:
            return _waiting(work.note)
        if self._work.get(key) is work:
            del self._work[key]
        if work.task.cancelled():
            return GateAnswer(state=GateVerdictWord.REFUSED, reason="it was given up")
        error = work.task.exception()
        if error is None:
            return READY
        if isinstance(error, HALError):
            return GateAnswer(state=GateVerdictWord.REFUSED, reason=str(error))
        self._runtime.log.error("files of a step", step=str(request.step), exc_info=error)
        return GateAnswer(state=GateVerdictWord.REFUSED, reason=f"the file service of the node failed: {error}")

    async def forget_old(self) -> None:
        """Remove copies that nobody has used for long, and forget what an agent that has died has asked for."""
        asked_ms = self._runtime.monotonic_ms() - WORK_KEPT_MS
        for key, work in list(self._work.items()):
            if work.asked_ms < asked_ms and work.task is not None:
                work.task.cancel()
                del self._work[key]
        before_ms = self._runtime.monotonic_ms() - SPARE_KEPT_MS
        for unused in [key for key, spare in self._spares.items() if spare.used_ms < before_ms]:
            self._trees.remove(self._spares.pop(unused).tree)

    async def close(self) -> None:
        """Remove the copies that are ready."""
        for task in self._sparing.values():
            task.cancel()
        for spare in self._spares.values():
            self._trees.remove(spare.tree)
        await self._trees.close()

    # ── work ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _until_done(self, do: Callable[[], Awaitable[None]], work: _Work) -> None:
        pause_ms = AGAIN_MS[0]
        while True:
            try:
                await do()
                return
            except FOR_NOW as error:
                work.note = error.message
            except OSError as error:  # the disk is full, for example
                work.note = f"this node's disk: {error.strerror or error}"
            await self._runtime.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, AGAIN_MS[1])

    async def _stage(self, step: StepId, request: FilesRequest, work: _Work) -> None:
        if self._trees.directory_of(step).exists():
            return
        account = await self._account(request.user)
        key = (request.user, request.order.ship)
        if not request.order.ship:
            self._trees.hand_over(await self._trees.make(account, None), step)
        elif not self._hand_over_spare(key, step):
            self._trees.hand_over(await self._copy(request.order.ship, step, account, work), step)
        if request.order.ship:
            self._renew_spare(key, step)

    def _hand_over_spare(self, key: tuple[str, str], step: StepId) -> bool:
        """Give the copy that is ready to a step; False: there is none."""
        spare = self._spares.pop(key, None)
        if spare is None:
            return False
        try:
            self._trees.hand_over(spare.tree, step)
        except FileNotFoundError:  # the agent has given it to another step
            return False
        return True

    def _renew_spare(self, key: tuple[str, str], step: StepId) -> None:
        """Make a copy ready, if none is."""
        if key not in self._sparing and not self._trees.is_ready(ready_name(*key)):
            self._sparing[key] = asyncio.ensure_future(self._make_spare(key, step))

    async def _copy(self, name: str, step: StepId, account: Account | None, work: _Work) -> Path:
        for tries in range(FETCH_TRIES):
            async with self._cache.bundle(name, step, partial(setattr, work, "note")) as bundle:
                try:
                    return await self._trees.make(account, bundle)
                except NotFoundError:
                    if tries == FETCH_TRIES - 1:
                        raise
        raise AssertionError

    async def _make_spare(self, key: tuple[str, str], step: StepId) -> None:
        try:
            await self._runtime.sleep(SPARE_PAUSE_MS)
            account = await self._account(key[0])
            async with self._cache.bundle(key[1], step, lambda note: None) as bundle:
                if bundle.manifest.size_bytes > MAX_SPARE_BYTES:
                    return
                tree = await self._trees.make(account, bundle)
            self._spares.pop(key, None)
            while len(self._spares) >= MAX_SPARES:
                self._trees.remove(self._spares.pop(next(iter(self._spares))).tree)
            ready = self._trees.keep_ready(tree, ready_name(*key))
            self._spares[key] = _Spare(ready, self._runtime.monotonic_ms())
        except (HALError, OSError) as error:
            self._runtime.log.info("no copy is kept ready", bundle=key[1], reason=str(error))
        finally:
            self._sparing.pop(key, None)

    async def _collect(self, step: StepId, request: FilesRequest, work: _Work) -> None:
        directory = self._trees.directory_of(step)
        order = request.order
        wanted = order.collect and (request.succeeded or order.when is CollectWhen.ENDED)
        if wanted and directory.exists():
            await self._deliver(step, request, work)
        self._trees.remove(directory)

    async def _deliver(self, step: StepId, request: FilesRequest, work: _Work) -> None:
        account = await self._account(request.user)
        link = await self._link.open()
        try:
            bounds = await link.bounds(step)
            if bounds.stored:
                return
            asked = self._trees.packed(
                step, account, request.order.collect, files=bounds.files, size_bytes=bounds.size_bytes
            )
            sent = 0
            async with asked as packed:
                async for data in packed.pieces():
                    await link.store(data)
                    sent += len(data)
                    work.note = f"{sent >> 20} MiB have gone"
            await link.stored(packed.files)
        finally:
            link.close()

    def _drop(self, name: str) -> None:
        for (ask, step), work in list(self._work.items()):
            if str(step) == name and work.task is not None:
                work.task.cancel()
                del self._work[ask, step]
        if "/" not in name and name not in ("", ".", ".."):
            self._trees.remove_ended(name)

    async def _account(self, user: str) -> Account | None:
        """As whom the step runs here; None: as this process.

        Raises:
            NotFoundError: this machine does not know the user.
        """
        if not self._each_as_itself:
            return None
        known_ms, account = self._accounts.get(user) or (0, None)
        if account is not None and self._runtime.monotonic_ms() < known_ms + KEEP_ACCOUNT_MS:
            return account
        account = await self._runtime.run_blocking(partial(account_of, user), Lane.NAMES)
        if account is None:
            raise NotFoundError(f"user '{user}' has no account on this node")
        while len(self._accounts) >= MAX_ACCOUNTS:
            del self._accounts[next(iter(self._accounts))]
        self._accounts[user] = (self._runtime.monotonic_ms(), account)
        return account


def _waiting(note: str) -> GateAnswer:
    return GateAnswer(state=GateVerdictWord.WAITING, reason=note, again_ms=AGAIN_ANSWER_MS)
