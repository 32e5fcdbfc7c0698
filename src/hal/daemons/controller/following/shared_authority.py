"""One authority for all controllers that share a database, which stores its fingerprint.

Nothing private goes into the database: whoever has a copy of it can neither make nodes nor pass for a controller.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hal.core.model import SpecError
from hal.daemons.controller.cycle.committer import OpenStore
from hal.runtime.authority import Authority, discard_authority, has_authority, open_authority

AUTHORITY: Final = "authority"
"""What the store keeps its fingerprint under."""
_COPY: Final = (
    "copy HAL_HOME/authority from the machine of a controller that works (docs/controllers.md); nothing was changed"
)


def shared_authority(open_store: OpenStore, directory: Path, now_ms: int, *, needed: bool) -> Authority | None:
    """The authority of this controller, the same as that of all others; made when nobody has one. Blocking.

    Args:
        needed: agents of other machines, or TLS, need one here; else None is given where there is none.
    Raises:
        SpecError: the others have another, or this one has none.
        StoreError: the database does not answer.
        DeniedError: its files cannot be used.
    """
    store = open_store()
    try:
        if not store.leased:
            return open_authority(directory, now_ms) if needed else None
        had = has_authority(directory)
        known = store.meta(AUTHORITY)
        if not had and known is not None and needed:
            raise SpecError(
                f"the controllers that share {store.location} have an authority ({known}), and this one has none in "
                f"{directory}",
                hint=_COPY,
            )
        if not had and not needed:
            return None
        authority = open_authority(directory, now_ms)
        known = store.claim_fact(AUTHORITY, authority.public_fingerprint)
        if known != authority.public_fingerprint:
            if not had:
                discard_authority(directory)
            raise SpecError(
                f"the controllers that share {store.location} have another authority ({known}) than the one in "
                f"{directory} ({authority.public_fingerprint})",
                hint=_COPY,
            )
        return authority
    finally:
        store.close()
