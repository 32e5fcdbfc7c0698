"""The list of controllers for people: who leads, who follows, who is silent; and warnings about the database that they
share."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from hal.store import SILENT_MS, ControllerRow, Leader, Store


class ControllerState(StrEnum):
    """The role of a controller."""

    LEADS = "leads"
    FOLLOWS = "follows"
    SILENT = "silent"
    """It has not renewed its row for a while, and was not stopped in good order."""


class ControllerView(Struct, frozen=True, kw_only=True):
    """One controller."""

    name: str
    """Its host and HAL_HOME."""
    state: ControllerState
    version: str
    rest: str
    """Where people reach it: its socket, and its URL, with a space between."""
    wire: str
    """Where agents of other machines dial, `HOST:PORT`; empty: nowhere."""
    pid: int
    since_ms: int
    """Since when it leads, or follows."""
    silent_ms: int
    """How long ago it renewed its row; each does so every 5 s."""


class ControllersList(Struct, frozen=True, kw_only=True):
    """All controllers by name."""

    controllers: list[ControllerView]
    warnings: list[str]
    """Of the database that they share: what is lost with its server."""


def list_controllers(store: Store, own: ControllerRow | None) -> ControllersList:
    """All of them. Blocking.

    Args:
        own: this one, which is the only one where no store is shared.
    Raises:
        StoreError: the store does not answer.
    """
    if not store.leased:
        alone = [] if own is None else [_view(own, ControllerState.LEADS)]
        return ControllersList(controllers=alone, warnings=[])
    leader = store.leader()
    views = [_view(row, state_of(row, leader)) for row in store.controllers()]
    return ControllersList(controllers=views, warnings=store.replication().warnings())


def state_of(row: ControllerRow, leader: Leader) -> ControllerState:
    """Return its role. One whose epoch has ended without a change of its row has died, or was stopped."""
    if row.silent_ms >= SILENT_MS or (row.epoch and (row.epoch != leader.epoch or leader.left_ms <= 0)):
        return ControllerState.SILENT
    return ControllerState.LEADS if row.epoch else ControllerState.FOLLOWS


def _view(row: ControllerRow, state: ControllerState) -> ControllerView:
    return ControllerView(
        name=row.id,
        state=state,
        version=row.version,
        rest=row.rest,
        wire=row.wire,
        pid=row.pid,
        since_ms=row.since_ms,
        silent_ms=row.silent_ms,
    )
