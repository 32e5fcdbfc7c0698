"""The keys under which secrets are stored: HAL_HOME/secrets.key, mode 0600, created with the first secret.

One key is current; older ones stay in the file until nothing is stored under them. Controllers that share a database
need the same file (docs/secrets.md). `cryptography` is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import DeniedError, HALError, InternalError
from hal.runtime.privacy import check_secret, write_private
from hal.runtime.regular_files import read_regular

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
ID_DIGITS: Final = 12
MAX_KEYS: Final = 16
"""Keys in the file: the current one, and those of rotations that have not ended."""
MAX_FILE_BYTES: Final = 64 << 10


class SealError(HALError):
    """What is stored cannot be opened: its key is missing, or it is not what was stored under that name."""

    code = "secret-sealed"


class _KeyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file contains."""

    current: str
    keys: dict[str, bytes]
    """By id."""


class KeyRing(Struct, frozen=True, kw_only=True):
    """The keys of one HAL. Immutable: a rotation makes another."""

    current: str = ""
    """Id of the key that seals; '' if there is none yet."""
    keys: dict[str, bytes] = {}

    def __repr__(self) -> str:
        """Without keys, wherever somebody prints it."""
        return f"KeyRing(current={self.current!r}, keys={sorted(self.keys)})"

    def seal(self, value: bytes, about: bytes, new_id: Callable[[], str]) -> tuple[str, bytes]:
        """Encrypt with the current key (AES-256-GCM, random nonce).

        Args:
            new_id: 32 hex digits that nobody can guess.
            about: what the value belongs to; it is authenticated, not stored.
        Returns: the key's id; the nonce and the ciphertext.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not self.current:
            raise InternalError("there is no key for secrets")
        nonce = bytes.fromhex(new_id())[:NONCE_BYTES]
        return self.current, nonce + AESGCM(self.keys[self.current]).encrypt(nonce, value, about)

    def open(self, key: str, sealed: bytes, about: bytes) -> bytes:
        """Decrypt.

        Raises:
            SealError: the key is not here, or this was not sealed with it for that.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if key not in self.keys:
            raise SealError(
                f"its key {key} is not in HAL_HOME/secrets.key of this controller",
                hint="copy the file from a controller that has it, or set the secret again",
            )
        try:
            return AESGCM(self.keys[key]).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
        except InvalidTag:
            raise SealError("what is stored is not what was set under that name", hint="set the secret again") from None

    def with_new_key(self, new_id: Callable[[], str]) -> KeyRing:
        """The same keys, and a new current one.

        Args:
            new_id: as for `seal`.
        Raises:
            DeniedError: earlier rotations have not ended, `MAX_KEYS` times.
        """
        if len(self.keys) >= MAX_KEYS:
            raise DeniedError(f"there are {MAX_KEYS} keys already", hint="see the controller's log for why they stay")
        current = new_id()[:ID_DIGITS]
        return KeyRing(current=current, keys={**self.keys, current: bytes.fromhex(new_id() + new_id())})

    def only(self, used: set[str]) -> KeyRing:
        """Only the current key, and these."""
        kept = {key: value for key, value in self.keys.items() if key == self.current or key in used}
        return KeyRing(current=self.current, keys=kept)


def read_keys(path: Path) -> KeyRing:
    """Read the file; an empty ring if there is none. Blocking.

    Raises:
        DeniedError: the file is open to others, or not such a file.
    """
    check_secret(path)
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return KeyRing()
    except OSError as error:
        raise DeniedError(f"{path} cannot be read: {error.strerror}", hint="restore it from a copy") from error
    try:
        found = msgspec.json.decode(data, type=_KeyFile)
    except msgspec.DecodeError as error:
        raise DeniedError(f"{path} is not a file of keys: {error}", hint="restore it from a copy") from error
    if found.current not in found.keys or any(len(key) != KEY_BYTES for key in found.keys.values()):
        raise DeniedError(f"{path} is not a file of keys: a key is missing or has another length")
    return KeyRing(current=found.current, keys=found.keys)


def write_keys(path: Path, ring: KeyRing) -> None:
    """Write the file, so that a power failure leaves the old one or the new one. Blocking.

    Raises:
        DeniedError: it cannot be written.
    """
    text = msgspec.json.encode(_KeyFile(current=ring.current, keys=ring.keys)).decode()
    try:
        write_private(path, text + "\n", durable=True)
    except OSError as error:
        raise DeniedError(f"{path} cannot be written: {error.strerror}") from error
