"""Add numbers two by two, each sum one task that waits for two others: `python graph.py SESSION_FILE [LEAVES]`.

docs/sessions.md describes sessions.
"""

import sys
from operator import add

from hal.client.session import open_session


def main() -> int:
    leaves = int(sys.argv[2]) if len(sys.argv) > 2 else 1_024
    with open_session(sys.argv[1]) as session:
        row = [session.submit(abs, -number) for number in range(leaves)]
        while len(row) > 1:
            odd = row[len(row) & ~1 :]
            row = [session.submit(add, one, other) for one, other in zip(row[::2], row[1::2], strict=False)] + odd
        print(row[0].result())
    return 0


if __name__ == "__main__":
    sys.exit(main())
