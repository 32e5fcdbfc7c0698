"""How many bytes of request bodies are kept at once: a bound for each user, and one for all of them.

Pure. What has come counts, not what was announced: whoever announces much and sends little takes nothing from anybody.
"""

from __future__ import annotations

from hal.rest.limiter import MIN_RETRY_S, TooManyError


class ByteBudget:
    """One for all users, or one for the owner."""

    def __init__(self, *, of_one: int, of_all: int) -> None:
        """
        Args:
            of_one: bytes that may be kept for one user.
            of_all: bytes that may be kept in all.
        """
        self._of_one = of_one
        self._of_all = of_all
        self._kept: dict[str, int] = {}
        """By user; those for whom nothing is kept are not there."""
        self.kept = 0
        """In all."""

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, who: str, amount: int) -> None:
        """Count bytes that are kept for a user; `give_back` must follow.

        Raises:
            TooManyError: there is no room for it; nothing was taken.
        """
        mine = self._kept.get(who, 0) + amount
        if mine > self._of_one or self.kept + amount > self._of_all:
            whose = f"{who} has" if mine > self._of_one else "all users together have"
            raise TooManyError(
                f"{whose} {mine - amount if mine > self._of_one else self.kept} bytes of requests under way",
                hint="send fewer large requests at once",
                retry_after_s=MIN_RETRY_S,
                first=False,
            )
        self._kept[who] = mine
        self.kept += amount

    def give_back(self, who: str, amount: int) -> None:
        """Count bytes that are kept no longer."""
        if not amount:
            return
        self.kept -= amount
        left = self._kept[who] - amount
        if left:
            self._kept[who] = left
        else:
            del self._kept[who]
