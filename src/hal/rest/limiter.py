"""How much anybody may ask: a bucket of requests for each identity that fills up again, and a number at once.

Pure; the time is passed in. Memory is bounded: who has not asked for longest is forgotten, which at worst gives them a
full bucket again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from hal.core.model import OverloadedError

MAX_IDENTITIES: Final = 10_000
"""Identities that are remembered."""
MAX_LOOKS: Final = 16
"""How many of the oldest are looked at for one that has nothing under way."""
MIN_RETRY_S: Final = 1


class TooManyError(OverloadedError):
    """More requests than one identity may make: nothing was done, come again later."""

    code = "too-many"

    def __init__(self, message: str, *, hint: str, retry_after_s: int, first: bool) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        """When there is room again, whole seconds."""
        self.first = first
        """The first refusal since something was let pass: worth a line in the audit log."""


class _Bucket:
    __slots__ = ("at_ms", "full", "left", "open")

    def __init__(self, left: float, at_ms: int) -> None:
        self.left = left
        """Requests that may still be made."""
        self.at_ms = at_ms
        self.open = 0
        """Requests under way."""
        self.full = False
        """The last one was refused."""


class Limiter:
    """One for all identities."""

    def __init__(self, *, per_s: int, burst: int, at_once: int, section: str = "access") -> None:
        """
        Args:
            per_s: requests a second that an identity may make in the long run.
            burst: that it may make at once after a pause.
            at_once: that may be under way, long polls and streams included.
            section: of hal.toml, in which these three are set.
        """
        self._section = section
        self._per_s = per_s
        self._burst = burst
        self._at_once = at_once
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def enter(self, who: str, now_ms: int) -> None:
        """Count a request; `leave` must follow.

        Raises:
            TooManyError: there is no room for it; it must not be followed by `leave`.
        """
        bucket = self._filled(who, now_ms)
        if bucket.open >= self._at_once:
            raise self._refused(
                bucket,
                f"{who} has {bucket.open} requests under way, long polls and streams included",
                f"let some end first; hal.toml: {self._section}.at_once",
                MIN_RETRY_S,
            )
        if bucket.left < 1:
            raise self._refused(
                bucket,
                f"{who} asks more than {self._per_s} times a second",
                f"put more into one request, or wait; hal.toml: {self._section}.requests_per_s, {self._section}.burst",
                max(MIN_RETRY_S, -int(-(1 - bucket.left) // self._per_s)),
            )
        bucket.left -= 1
        bucket.open += 1
        bucket.full = False

    def charge(self, who: str, amount: int) -> None:
        """Charge more for a request that `enter` let pass; whoever is in debt then waits with the next one."""
        bucket = self._buckets.get(who)
        if bucket is not None:
            bucket.left -= amount

    def leave(self, who: str) -> None:
        """Count a request as answered."""
        bucket = self._buckets.get(who)
        if bucket is not None and bucket.open:
            bucket.open -= 1

    def _filled(self, who: str, now_ms: int) -> _Bucket:
        bucket = self._buckets.get(who)
        if bucket is None:
            self._make_room()
            bucket = self._buckets[who] = _Bucket(float(self._burst), now_ms)
            return bucket
        self._buckets.move_to_end(who)
        passed_ms = max(now_ms - bucket.at_ms, 0)
        bucket.left = min(bucket.left + passed_ms * self._per_s / 1_000, float(self._burst))
        bucket.at_ms = now_ms
        return bucket

    def _make_room(self) -> None:
        for _ in range(MAX_LOOKS):
            if len(self._buckets) < MAX_IDENTITIES:
                return
            who, bucket = self._buckets.popitem(last=False)
            if bucket.open:
                self._buckets[who] = bucket  # it is in use: look at the next one
        if len(self._buckets) >= MAX_IDENTITIES:
            raise TooManyError(
                f"{MAX_IDENTITIES} identities have requests under way",
                hint="try again in a second",
                retry_after_s=MIN_RETRY_S,
                first=False,
            )

    def _refused(self, bucket: _Bucket, message: str, hint: str, retry_after_s: int) -> TooManyError:
        first, bucket.full = not bucket.full, True
        return TooManyError(message, hint=hint, retry_after_s=retry_after_s, first=first)
