"""joblib on a session: importing this module registers the backend `hal`.

from joblib import Parallel, delayed, parallel_config
import hal.client.sessions.joblib_backend

with parallel_config("hal", session=session):
    Parallel()(delayed(sqrt)(i) for i in range(1_000_000))
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final

from joblib import cpu_count, register_parallel_backend
from joblib._parallel_backends import AutoBatchingMixin, FallbackToBackend, SequentialBackend
from joblib.parallel import ParallelBackendBase

from hal.client.session import Session
from hal.core.model.errors import SpecError

__all__ = ["HalBackend"]

Called = tuple[Callable[[Any], object], "Future[Any]"]
"""What joblib wants to be called with the future of a batch that has ended."""


class HalBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Batches of joblib's calls are tasks of a session.

    joblib chooses how many calls are a batch. `n_jobs` bounds how much is sent ahead, as far as `pre_dispatch` of
    `Parallel` goes by it; the session's slots decide how much runs at once. With `n_jobs=1` all runs in the caller.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1
    MIN_IDEAL_BATCH_DURATION = 0.02
    """Seconds. A tenth of what joblib's own pools have: a batch costs microseconds."""
    MAX_IDEAL_BATCH_DURATION = 0.2

    def __init__(self, session: Session | None = None, slots: int = 0, **joblib_options: Any) -> None:
        """Called by joblib, with what `parallel_config` was given.

        Args:
            session: where the tasks run; a backend without one can be made, but not used.
            slots: what `n_jobs=-1` stands for; 0: as many as this machine has CPUs.
        """
        super().__init__(**joblib_options)
        self._session = session
        self._slots: Final = slots or cpu_count()
        self._unended: set[Future[Any]] = set()
        self._ended: SimpleQueue[Called | None] | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches run at once, as far as is known."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max(self._slots + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_options: Any) -> int:
        """Begin calls of a `Parallel`; returns `effective_n_jobs`.

        Raises:
            SpecError: there is no session.
        """
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self._session is None:
            raise SpecError("joblib's backend 'hal' has no session", hint='parallel_config("hal", session=…)')
        self.parallel = parallel
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object]) -> Future[Any]:
        """Submit a batch.

        A thread of its own calls joblib back: that takes locks which joblib holds while it submits, and whoever submits
        may wait until the session's window has room, which the session's thread makes.
        """
        assert self._session is not None  # `configure` has checked it
        ended = self._ended
        if ended is None:
            ended = self._ended = SimpleQueue()
            threading.Thread(target=_call_back, args=(ended,), name="hal-joblib", daemon=True).start()
        future = self._session.submit(operator.call, func)
        self._unended.add(future)
        future.add_done_callback(lambda future: ended.put((callback, future)))
        future.add_done_callback(self._unended.discard)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch.

        Raises: the exception of a task.
        """
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what no worker has."""
        for future in tuple(self._unended):
            future.cancel()
        if not ensure_ready:
            self.terminate()

    def terminate(self) -> None:
        """End the calls of a `Parallel`. The session belongs to the caller."""
        if self._ended is not None:
            self._ended.put(None)
            self._ended = None
        self.reset_batch_stats()


def _call_back(ended: SimpleQueue[Called | None]) -> None:
    while (one := ended.get()) is not None:
        callback, future = one
        callback(future)


register_parallel_backend("hal", HalBackend)
