"""Dask on a session: graphs of Dask, and `submit`, `map`, `gather`, `scatter` in the way of Dask's client.

    client = Client(session)
    dask.compute(collection, scheduler=client.get)
    client.gather(client.map(f, range(1_000)))

Only `get` needs Dask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from hal.client.session import Session, SharedValue

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """A session, with the methods of Dask's client."""

    def __init__(self, session: Session, slots: int = 0) -> None:
        """Use a session, which belongs to the caller.

        Args:
            slots: as far as is known; `get` keeps twice as many tasks of a graph under way. 0: as many as this machine
                has CPUs.
        """
        self._session = session
        self._under_way: Final = 2 * (slots or os.cpu_count() or 1)

    def submit(self, function: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
        """Submit one call; returns its future."""
        return self._session.submit(function, *arguments, **named)

    def map(self, function: Callable[..., T], *iterables: Iterable[Any], **named: Any) -> list[Future[T]]:
        """Submit a call for each item; returns the futures. Named arguments are the same for all calls."""
        return [self._session.submit(function, *items, **named) for items in zip(*iterables, strict=False)]

    def gather(self, futures: Any) -> Any:
        """Wait for the futures in lists, tuples, sets and maps; returns the same with results in their place.

        Raises: the exception of the first task that failed.
        """
        if isinstance(futures, Future):
            return futures.result()
        if isinstance(futures, dict):
            return {key: self.gather(one) for key, one in futures.items()}
        if isinstance(futures, list | tuple | set | frozenset):
            return type(futures)(self.gather(one) for one in futures)
        return futures

    def scatter(self, value: Any) -> SharedValue:
        """Send a value once, for many tasks."""
        return self._session.put(value)

    def get(self, graph: Mapping[Any, Any], keys: Any, **options: Any) -> Any:
        """Compute keys of a graph; what `scheduler=` of Dask takes.

        Tasks are sent in Dask's order, as their inputs are there; results that others need come here and go out again.

        Raises: the exception of a task.
        """
        import dask.local
        import dask.optimization
        import dask.utils

        local: Any = dask.local  # partly typed
        cull: Any = dask.optimization.cull

        if hasattr(graph, "__dask_graph__"):
            graph = graph.__dask_graph__()
        options.pop("num_workers", None)
        wanted, _ = cull(dask.utils.ensure_dict(graph), keys)
        return local.get_async(self._session.submit, self._under_way, wanted, keys, **options)
