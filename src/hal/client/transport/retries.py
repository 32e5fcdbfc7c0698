"""When a request is sent again, to which controller, after how long, and with which error that ends. No I/O.

Both transports ask this; they differ only in how they send and sleep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hal.client.addresses.endpoints import Endpoint
from hal.client.transport.backoff import Turn
from hal.client.transport.exchange import (
    ANSWER_TIMEOUT_S,
    TOO_MANY,
    Answer,
    BrokenConnectionError,
    Request,
    lost_leader,
)
from hal.client.transport.rotation import Rotation, Search
from hal.core.model.errors import UnreachableError

if TYPE_CHECKING:
    from hal.client.addresses.address import Address

_NO_LEADER: Final = UnreachableError("no controller leads at the moment")


class Tries:
    """The tries of one request."""

    def __init__(
        self, request: Request, address: Address, rotation: Rotation, *, answered: bool, reconnect_s: float
    ) -> None:
        """
        Args:
            answered: a controller has answered this client before, so it is waited for.
        """
        self._request = request
        self._address = address
        self._search = Search(rotation, answered=answered, reconnect_s=reconnect_s)
        self._turn = Turn()

    def after_answer(self, endpoint: Endpoint | None, answer: Answer, now_s: float) -> float | None:
        """Seconds to wait before the next try; None: this is the answer."""
        if answer.status == TOO_MANY:  # nothing was done: any request may be sent again
            return self._turn.refused(answer.headers.get("retry-after"))
        if lost_leader(self._request, answer):  # another controller takes over within seconds
            return self._search.failed(endpoint, _NO_LEADER, now_s, reached=True)
        return None

    def after_unreachable(
        self, endpoint: Endpoint | None, error: UnreachableError, now_s: float, *, reached: bool = False
    ) -> float:
        """Seconds to wait before the next try.

        Args:
            reached: a controller was reached, and then lost.
        Raises:
            UnreachableError: it is time to give up.
        """
        delay_s = self._search.failed(endpoint, error, now_s, reached=reached)
        if delay_s is None:
            raise self._search.error(error) from error
        return delay_s

    def after_break(self, endpoint: Endpoint | None, error: BrokenConnectionError, now_s: float) -> float:
        """Seconds to wait before the next try.

        Raises:
            UnreachableError: it is time to give up, or the request must not be sent twice.
        """
        unreachable = self._explained(endpoint, error)
        if self._request.repeatable:
            delay_s = self._search.failed(endpoint, unreachable, now_s, reached=True)
            if delay_s is not None:
                return delay_s
        raise unreachable from error

    def _explained(self, endpoint: Endpoint | None, error: BrokenConnectionError) -> UnreachableError:
        what = f"{self._request.method} {self._request.path}"
        if error.timed_out:
            return UnreachableError(
                f"the controller did not answer {what} within {ANSWER_TIMEOUT_S + self._request.wait_s:.0f} s",
                hint="see its log, log/controller.log in HAL_HOME",
            )
        if not self._request.repeatable:
            return UnreachableError(
                f"the connection broke before {what} was answered: it may or may not have been done",
                hint="check before you try again: hal jobs",
            )
        return self._address.unreachable(f"the connection broke ({error})", endpoint)
