"""The text of a join token: `hal1.ID.SECRET.FINGERPRINT`. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hal.core.model.errors import SpecError

PREFIX: Final = "hal1"
_TOKEN: Final = re.compile(r"hal1\.([0-9a-f]{8})\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")


class JoinToken(NamedTuple):
    """The parts of a join token."""

    id: str
    secret: str
    fingerprint: str
    """SHA-256 of the authority's certificate, in base64url without padding."""

    @property
    def text(self) -> str:
        """The token's text."""
        return f"{PREFIX}.{self.id}.{self.secret}.{self.fingerprint}"

    @property
    def proof(self) -> str:
        """The part that is sent to the controller."""
        return f"{self.id}.{self.secret}"


def read_join_token(text: str) -> JoinToken:
    """Parse a join token.

    Raises:
        SpecError: it is not a join token, or incomplete. The message does not quote the text, which may be a secret.
    """
    found = _TOKEN.fullmatch(text.strip())
    if found is None:
        whole = text.strip().startswith(f"{PREFIX}.")
        raise SpecError(
            "--join: the join token is incomplete" if whole else "--join: this is not a join token",
            hint="`hal token create` on the controller's machine prints one; copy all of it",
        )
    return JoinToken(found[1], found[2], found[3])
