"""A score plugin's answers: asked for shapes that are new, for nodes that were touched, and where advice has changed.

Pure. Answers are kept in the table `scores`, a line for each shape. Once a slice, never for a single decision.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.engine.plugins.answers import scores_of
from hal.core.engine.state import State
from hal.core.engine.tables.advice import Floats
from hal.core.engine.views import advice_on_nodes, node_view, preferring_request, request_of
from hal.core.interfaces.policy import Request
from hal.core.interfaces.score import Score
from hal.core.kernels.nodes.rows import follow_rows
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.layout import BLOCK, BLOCK_BITS, TOUCHED

MOST_LINES_KEPT: Final = 64
"""Answers about shapes that are gone, beyond as many as there are shapes, before all are asked for anew."""
SCORES_A_SLICE: Final = 50_000
"""Scores that are asked for again in one slice because of advice; one shape is, whatever the number of nodes."""
SCORES_A_CALL: Final = 500
"""What a call of the plugin costs at least, in scores."""

NO_CLASSES: Final = np.zeros(0, np.int64)


def score_nodes(state: State) -> None:
    """Ask a score plugin, once a slice: about shapes that are new here, and where it reads what is free, about nodes
    that were touched since it last was asked."""
    score, plugins = state.plugins.score, state.plugins
    assert score is not None
    rows = len(state.nodes.names)
    if plugins.scored_at < 0 or len(plugins.scored_shapes) > _most_lines(state):
        state.catalogue.shapes[:, L.S_SCORES] = -1
        state.catalogue.classes[:, L.C_SCORES] = 0
        plugins.scored_shapes, plugins.scored_classes = [], []
        _note_advice(state, advice_on_nodes(state, score.info.reads_advice))
        follow_rows(state.at)
    elif score.info.reads_free and plugins.scored_shapes:
        touched = _touched_rows(state)
        if touched.shape[0]:
            view = node_view(state, touched, score.info.reads_advice)
            for line in range(len(plugins.scored_shapes)):
                if _is_current(state, line):
                    state.scratch.scores[line, touched] = scores_of(score, _request(state, line), view)
            _touch(state, touched)
    plugins.scored_at = int(state.ticks[L.TICK_TOUCHED])
    fresh = _fresh(state, score.info.reads_preference)
    if not fresh:
        return
    state.room_for_scores(len(plugins.scored_shapes) + len(fresh))
    view = node_view(state, reads=score.info.reads_advice)
    for shape, class_id in fresh:
        line = len(plugins.scored_shapes)
        plugins.scored_shapes.append(shape)
        plugins.scored_classes.append(class_id)
        state.scratch.scores[line, :rows] = scores_of(score, _request(state, line), view)
        if class_id >= 0:
            state.catalogue.classes[class_id, L.C_SCORES] = line + 1
        else:
            state.catalogue.shapes[shape, L.S_SCORES] = line
            state.catalogue.shapes[shape, L.S_FOLLOWED] = -1


def _fresh(state: State, preferences: bool) -> list[tuple[int, int]]:
    """Shapes that wait and were not asked about, each with -1, and, with `preferences`, so classes that prefer
    something."""
    catalogue = state.catalogue
    buckets = state.work.active[: int(state.meta[L.M_ACTIVE])]
    classes = _with_groups(state, np.unique(state.work.buckets[buckets, L.B_CLASS]))
    table = catalogue.classes[classes]
    shapes = np.unique(table[:, L.C_SHAPE])
    fresh = [(shape, -1) for shape in shapes[catalogue.shapes[shapes, L.S_SCORES] < 0].tolist()]
    if preferences and state.meta[L.M_PREFERS]:
        some = (table[:, L.C_PREFERENCE] != 0) & (table[:, L.C_SCORES] == 0)
        fresh += zip(table[some, L.C_SHAPE].tolist(), classes[some].tolist(), strict=True)
    return fresh


def _with_groups(state: State, classes: Ints) -> Ints:
    """The same classes and those of the other groups of their jobs, which wait outside of buckets."""
    following = state.catalogue.classes[classes, L.C_NEXT] if state.meta[L.M_GROUPS] else NO_CLASSES
    while (following := following[following > 0] - 1).size:
        classes = np.union1d(classes, following)
        following = state.catalogue.classes[following, L.C_NEXT]
    return classes


def read_advice(state: State) -> bool:
    """Before a new pass: ask a score plugin again about nodes of which advice that it reads has changed.

    At most SCORES_A_SLICE scores; returns whether some are left, which decide as they were until the next call.
    """
    score, plugins = state.plugins.score, state.plugins
    if score is None or not score.info.reads_advice or plugins.scored_at < 0:
        return False
    if plugins.scored_advice != state.advice.changes:
        _compare_advice(state, score)
    if not plugins.outdated_lines:
        return False
    nodes = plugins.outdated_nodes
    view = node_view(state, nodes, score.info.reads_advice)
    left = SCORES_A_SLICE
    while plugins.outdated_lines and left > 0:
        line = plugins.outdated_lines.pop()
        if _is_current(state, line):
            state.scratch.scores[line, nodes] = scores_of(score, _request(state, line), view)
            state.catalogue.shapes[plugins.scored_shapes[line], L.S_FOLLOWED] = -1
            left -= max(nodes.shape[0], SCORES_A_CALL)
    return bool(plugins.outdated_lines)


def _compare_advice(state: State, score: Score) -> None:
    """Note the nodes of which advice is another one now; answers about them are out of date."""
    plugins = state.plugins
    now, before = advice_on_nodes(state, score.info.reads_advice), plugins.advised
    outdated = np.zeros(len(state.nodes.names), np.bool_)
    for kind, column in now.items():
        old = before[kind]
        outdated |= (column != old) & ~(np.isnan(column) & np.isnan(old))
    changed = np.flatnonzero(outdated)
    if not changed.size:
        plugins.scored_advice = state.advice.changes
        return
    if plugins.outdated_lines:
        changed = np.union1d(changed, plugins.outdated_nodes)
    _note_advice(state, now)
    plugins.outdated_nodes = changed
    plugins.outdated_lines = list(range(len(plugins.scored_shapes)))


def _note_advice(state: State, now: dict[str, Floats]) -> None:
    """All answers are of this advice."""
    plugins = state.plugins
    plugins.advised, plugins.scored_advice = now, state.advice.changes
    plugins.outdated_lines = []


def _most_lines(state: State) -> int:
    kinds = len(state.catalogue.shape_ids) + (len(state.catalogue.class_ids) if state.meta[L.M_PREFERS] else 0)
    return MOST_LINES_KEPT + 2 * kinds


def _is_current(state: State, line: int) -> bool:
    """Whether the shape or class of a line is what it was asked about; else its number belongs to another one now."""
    shape, class_id = state.plugins.scored_shapes[line], state.plugins.scored_classes[line]
    if class_id >= 0:
        return bool(state.catalogue.classes[class_id, L.C_SCORES] == line + 1)
    return bool(state.catalogue.shapes[shape, L.S_SCORES] == line)


def _request(state: State, line: int) -> Request:
    """What a line is about."""
    shape, class_id = state.plugins.scored_shapes[line], state.plugins.scored_classes[line]
    spec = state.catalogue.class_specs[class_id] if class_id >= 0 else state.catalogue.shape_specs[shape]
    assert spec is not None
    return preferring_request(state, spec) if class_id >= 0 else request_of(state, spec)


def _touched_rows(state: State) -> Ints:
    """Rows touched since the plugin was last asked: one by one, or all of the touched blocks when these were many."""
    place = int(state.ticks[L.TICK_TOUCHED])
    if place - state.plugins.scored_at <= TOUCHED:
        return np.unique(state.scratch.touched[np.arange(state.plugins.scored_at, place) & (TOUCHED - 1)])
    blocks = np.flatnonzero(state.scratch.block_touched >= state.plugins.scored_at)
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return rows[rows < len(state.nodes.names)]


def _touch(state: State, rows: Ints) -> None:
    """Let every shape look at these rows again."""
    place = int(state.ticks[L.TICK_TOUCHED])
    last = place + rows.shape[0]
    ring = np.arange(max(place, last - TOUCHED), last)
    state.scratch.touched[ring & (TOUCHED - 1)] = rows[rows.shape[0] - ring.shape[0] :]
    state.scratch.block_touched[rows >> BLOCK_BITS] = last - 1
    state.ticks[L.TICK_TOUCHED] = last
