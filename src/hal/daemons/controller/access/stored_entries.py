"""Entries that the store keeps as rows of JSON, each under a key of its kind: tokens, secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from hal.core.model import StoreError

E = TypeVar("E", bound=Struct)


def read_entries(meta: Mapping[str, str], prefix: str, kind: type[E], noun: str) -> list[E]:
    """Return those of the rows whose keys begin with `prefix`.

    Args:
        noun: what such a row is, for people.
    Raises:
        StoreError: a row is not one; names it.
    """
    decoder = msgspec.json.Decoder(kind)
    found = []
    for key, value in meta.items():
        if key.startswith(prefix):
            try:
                found.append(decoder.decode(value))
            except msgspec.DecodeError as error:
                raise StoreError(f"row '{key}' of the store is not a {noun}: {error}") from error
    return found
