"""A mean of an array of Dask, in the slots of a session: `python dask_tree.py SESSION_FILE`.

docs/sessions.md describes sessions.
"""

import sys

import dask.array

from hal.client.session import open_session
from hal.client.sessions.dask_client import Client


def main() -> int:
    with open_session(sys.argv[1]) as session:
        numbers = dask.array.arange(1_000_000, chunks=100_000)
        print(numbers.mean().compute(scheduler=Client(session).get))
    return 0


if __name__ == "__main__":
    sys.exit(main())
