"""`state_digest`: equal states, equal digest, whatever the slots that things happen to lie in.

Pure. O(n log n); for tests and for checking that a replayed event log rebuilt the state.
"""

from __future__ import annotations

import hashlib

import numpy as np

from hal.core.engine.state import State
from hal.core.engine.views import pending, reservations, reserved_rows, rows_of_run, running
from hal.core.kernels.structures import layout as L


def state_digest(state: State) -> str:
    """32 hex digits over everything that decides what the engine does next, named by value."""
    digest = hashlib.blake2b(digest_size=16)

    def add(*values: object) -> None:
        digest.update(repr(values).encode())

    meta = state.meta
    add("clock", int(meta[L.M_CLOCK]), "pending", int(meta[L.M_PENDING]), "runs", int(meta[L.M_RUNS]))
    predictions = state.work.predictions
    add("predictions", predictions.version, predictions.expires_ms, predictions.jobs.tolist())
    for kind, held in sorted(state.advice.kinds.items()):
        add("advice", kind, str(held.space), held.version, held.expires_ms, sorted(state.advice.items(kind)))
    add("parked", bool(meta[L.M_PARKED_WAKE] >= meta[L.M_WAKE]), "dirty", bool(meta[L.M_DIRTY]))
    for row, name in enumerate(state.nodes.names):
        amounts = {
            resource: (int(state.nodes.capacity[row, r]), int(state.nodes.free[row, r]))
            for r, resource in enumerate(state.nodes.resources)
            if state.nodes.capacity[row, r] or state.nodes.free[row, r]
        }
        add(
            row,
            name,
            int(state.nodes.rows[row, L.N_STATE]),
            sorted(amounts.items()),
            sorted(state.nodes.labels[row].items()),
            state.domains.path_of(row),
            *([sorted(state.nodes.taints[row].items())] if row in state.nodes.taints else []),
        )
    add("offers", state.offers)
    for booked in state.bookings.all:
        add(booked.spec, booked.rows, booked.made_ms)
    for entry in pending(state):
        add(_class_name(state, int(entry["class_id"])), state.shares.owner_specs[entry["owner_id"]], _numbers(entry))
    for run in running(state):
        rows = rows_of_run(state, int(run["run"]))
        add(_class_name(state, int(run["class_id"])), state.shares.owner_specs[run["owner_id"]], _numbers(run), rows)
    reserved = reserved_rows(state)
    for reservation in reservations(state):
        first, count = int(reservation["row_offset"]), int(reservation["row_count"])
        add(
            int(reservation["job"]), int(reservation["task"]), int(reservation["start_ms"]), int(reservation["kind"]),
            int(reservation["entry"]) >= 0, int(reservation["held"]), int(reservation["behind"]),
            reserved[first : first + count].tolist(),
        )  # fmt: skip
    return digest.hexdigest()


def _class_name(state: State, class_id: int) -> tuple[object, ...]:
    spec = state.catalogue.class_specs[class_id]
    assert spec is not None
    return (
        sorted(spec.request.items()),
        spec.nodes,
        sorted(map(repr, spec.constraints)),
        spec.booking,
        sorted(spec.licences.items()),
        spec.within,
        *([sorted(spec.tolerates)] if spec.tolerates else []),
        *(["movable"] if spec.movable else []),
        *([spec.preference] if spec.preference is not None else []),
        *([sorted(spec.labels), sorted(spec.apart), sorted(spec.together)] if spec.is_social else []),
        *([spec.group, spec.follows, len(spec.groups)] if spec.groups or spec.follows else []),
    )


def _numbers(record: np.void) -> list[int]:
    skipped = ("class_id", "owner_id", "run")
    names = record.dtype.names or ()
    return [int(record[name]) for name in names if name not in skipped]
