"""One rank of the gang: all ranks run at once on different nodes, so each can wait for all the others to arrive."""

import os
import time
from pathlib import Path

ARRIVAL_S = 30.0

rank, count = int(os.environ["HAL_NODE_RANK"]), int(os.environ["HAL_NODE_COUNT"])
meeting = Path(os.environ["DEMO_DIR"], f"ring-{os.environ['HAL_JOB_ID']}-{os.environ['HAL_ATTEMPT']}")
meeting.mkdir(exist_ok=True)
Path(meeting, str(rank)).write_text(os.environ["HAL_NODE"])

deadline = time.monotonic() + ARRIVAL_S
while len(list(meeting.iterdir())) < count:
    if time.monotonic() > deadline:
        raise SystemExit(f"rank {rank}: the others did not arrive within {ARRIVAL_S:g} s")
    time.sleep(0.02)
if rank == 0:
    print("met on " + ", ".join(Path(meeting, str(other)).read_text() for other in range(count)))
time.sleep(1.0)
