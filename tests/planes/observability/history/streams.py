"""Random streams of ended attempts, as a controller gives them page by page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from hal.planes.observability.history.feed_rows import AskedRow, FeedPage, FeedRow, NodesAsked
from hal.planes.observability.history.tables import STATES

DAY_MS = 86_400_000
BEGIN_MS = 20_000 * DAY_MS
"""Of every stream."""
GIB = 1 << 30


def row(
    sequence: int,
    *,
    end_ms: int,
    ran_ms: int | None = 60_000,
    job: int = 1,
    task: int = 0,
    attempt: int = 1,
    cpu: int = 2_000,
    memory_bytes: int = GIB,
    gpu: int = 0,
    usage: dict[str, int] | None = None,
    nodes: Sequence[str] = ("n1",),
    walltime_ms: int | None = 600_000,
    **fields: object,
) -> FeedRow:
    """An attempt that waited for 5 s."""
    start_ms = None if ran_ms is None else end_ms - ran_ms
    began_ms = end_ms if start_ms is None else start_ms
    told = {
        "state": "succeeded", "name": "train", "queue": "default", "account": "physics", "user": "ada",
        "recorded_ms": end_ms + 5, **fields,
    }  # fmt: skip
    return FeedRow(
        sequence=sequence,
        job=str(job),
        task=task,
        attempt=attempt,
        nodes=tuple(nodes),
        allocated_ms=began_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        usage={"user_ms": 50_000, "system_ms": 1_000, "max_rss_bytes": GIB // 2, "cgroup": 7}
        if usage is None
        else usage,
        asked=AskedRow(
            submit_ms=began_ms - 5_000,
            walltime_ms=walltime_ms,
            nodes=(NodesAsked(nodes=len(nodes), amounts={"cpu": cpu, "memory": memory_bytes, "gpu": gpu}),),
        ),
        **told,  # type: ignore[arg-type]
    )


def page(
    rows: Sequence[FeedRow], *, lost: Sequence[tuple[int, int]] = (), cursor: int = 0, more: bool = False
) -> FeedPage:
    """These rows, and the cursor behind them."""
    behind = max([cursor, *(one.sequence for one in rows), *(last for _, last in lost)])
    return FeedPage(attempts=tuple(rows), cursor=str(behind), more=more, lost=tuple(lost))


@st.composite
def streams(draw: st.DrawFn) -> list[FeedRow]:
    """Up to 40 attempts of several people over some days: late ends, gangs, attempts that never began, requeues."""
    rows: list[FeedRow] = []
    recorded_ms = BEGIN_MS
    attempts: dict[tuple[int, int], int] = {}
    for sequence in range(1, draw(st.integers(1, 40)) + 1):
        recorded_ms += draw(st.integers(0, 3 * 3_600_000))
        late_ms = draw(st.sampled_from([0, 0, 0, 1, 90_000, 5 * 3_600_000, 2 * DAY_MS]))
        end_ms = max(recorded_ms - late_ms, 0)
        task = (draw(st.integers(1, 4)), draw(st.integers(0, 2)))
        attempts[task] = attempts.get(task, 0) + 1
        used = {
            "user_ms": draw(st.integers(0, 10**7)),
            "system_ms": draw(st.integers(0, 10**6)),
            "max_rss_bytes": draw(st.integers(0, 4 * GIB)),
            "read_bytes": draw(st.integers(0, 10**12)),
            "cgroup": draw(st.sampled_from([0, 7])),
        }
        rows.append(
            row(
                sequence,
                end_ms=end_ms,
                ran_ms=draw(st.one_of(st.none(), st.integers(0, 10**8))),
                job=task[0],
                task=task[1],
                attempt=attempts[task],
                cpu=draw(st.sampled_from([0, 500, 1_000, 64_000])),
                memory_bytes=draw(st.sampled_from([0, GIB, 3 * GIB + 1])),
                gpu=draw(st.sampled_from([0, 500, 4_000])),
                usage=draw(st.sampled_from([used, {}])),
                nodes=draw(st.sampled_from([("n1",), ("n2",), ("n1", "n2", "n3")])),
                walltime_ms=draw(st.sampled_from([None, 60_000])),
                state=draw(st.sampled_from(STATES)),
                name=draw(st.sampled_from(["train", "test", "<script>alert(1)</script>"])),
                queue=draw(st.sampled_from(["default", "night"])),
                account=draw(st.sampled_from(["physics", "biology", ""])),
                user=draw(st.sampled_from(["ada", "bob"])),
                recorded_ms=recorded_ms,
            )
        )
    return rows


def pages(rows: Sequence[FeedRow], sizes: Sequence[int]) -> Iterator[FeedPage]:
    """The stream cut into pages of these sizes, round and round."""
    left, size = list(rows), itertools.cycle(sizes)
    while left:
        count = next(size)
        yield page(left[:count], more=len(left) > count)
        left = left[count:]
