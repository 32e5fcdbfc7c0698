"""`AsyncSession`: a session for asyncio; see `hal.client.session`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from hal.client.session import Session, open_session
from hal.runtime.commands import CommandEnd, run_command
from hal.runtime.session_file import SessionFile
from hal.runtime.shared_values import SharedValue

if TYPE_CHECKING:
    from hal.client.sessions.failures import FailedTask

P = ParamSpec("P")
T = TypeVar("T")


async def aopen_session(
    session: SessionFile | str | Path,
    *,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
) -> AsyncSession:
    """As `hal.client.session.open_session`."""
    opened = await asyncio.to_thread(open_session, session, initializer=initializer, initargs=initargs)
    return AsyncSession(opened)


class AsyncSession:
    """A session whose results are awaited. `async with` closes it once all its tasks have ended."""

    def __init__(self, session: Session) -> None:
        """Use `aopen_session`."""
        self.session = session
        """The same session, for code without asyncio."""

    def options(self, **options: Any) -> AsyncSession:
        """As `Session.options`."""
        return AsyncSession(self.session.options(**options))

    async def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """As `Session.submit`; returns once the task is accepted. Cancelling the future cancels the task if no worker
        has it."""
        if self.session.accepts_now:
            return asyncio.wrap_future(self.session.submit(fn, *args, **kwargs))
        return asyncio.wrap_future(await asyncio.to_thread(self.session.submit, fn, *args, **kwargs))

    async def command(self, argv: Sequence[str | bytes]) -> asyncio.Future[CommandEnd]:
        """As `Session.command`; returns once the task is accepted."""
        return await self.submit(run_command, list(argv))

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        progress: bool | str = False,
    ) -> AsyncMap[T]:
        """As `Session.map`: `async for result in session.map(…)`."""
        return AsyncMap(self.session, fn, iterables, timeout, progress)

    async def failures(self, *, tag: str = "", function: str = "") -> list[FailedTask]:
        """As `Session.failures`."""
        return await asyncio.to_thread(self.session.failures, tag=tag, function=function)

    async def put(self, value: Any) -> SharedValue:
        """As `Session.put`."""
        return await asyncio.to_thread(self.session.put, value)

    async def shutdown(self, *, cancel_futures: bool = False) -> None:
        """As `Session.shutdown`, waiting for all tasks."""
        await asyncio.to_thread(self.session.shutdown, cancel_futures=cancel_futures)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()


class AsyncMap(Generic[T]):
    """The results of a map, in order."""

    def __init__(
        self,
        session: Session,
        fn: Callable[..., T],
        iterables: tuple[Iterable[Any], ...],
        timeout: float | None,
        progress: bool | str,
    ) -> None:
        self._session, self._fn, self._iterables = session, fn, iterables
        self._timeout, self._progress = timeout, progress

    async def __aiter__(self) -> AsyncIterator[T]:
        parts: Iterator[Iterator[T]] | None = None
        try:
            tasks = await asyncio.to_thread(
                self._session.task_map, self._fn, self._iterables, self._timeout, self._progress
            )
            parts = tasks.parts()
            while (part := await asyncio.to_thread(next, parts, None)) is not None:
                for result in part:
                    yield result
        finally:
            if parts is not None:
                await asyncio.to_thread(parts.close)  # type: ignore[attr-defined]
