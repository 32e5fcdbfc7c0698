"""A parameter sweep: many short jobs, the best result, one that failed is looked at. Run it with a HAL up."""

from __future__ import annotations

import sys

import hal

POINTS = 12
CODE = """
import sys
x = int(sys.argv[1])
if x == 7:
    sys.exit("x = 7 does not converge")
print((x - 4) ** 2)
"""


def main() -> int:
    """Returns 0 when all points but the seventh gave a result."""
    with hal.connect() as client:
        jobs = {
            x: client.submit([sys.executable, "-c", CODE, str(x)], name=f"point-{x}", cpus=0.25, walltime="1m")
            for x in range(POINTS)
        }
        client.wait_all(jobs.values(), timeout=120)
        results = {x: int(job.logs()) for x, job in jobs.items() if job.state is hal.TaskState.SUCCEEDED}
        best = min(results, key=lambda x: results[x])
        print(f"best: x = {best} gives {results[best]}, of {len(results)} results")
        for x, job in jobs.items():
            if job.state is hal.TaskState.FAILED:
                print(f"x = {x} failed with exit code {job.exit_code}: {job.logs('stderr').strip()}")
    return 0 if best == 4 and len(results) == POINTS - 1 else 1


if __name__ == "__main__":
    sys.exit(main())
