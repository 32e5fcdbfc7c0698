"""Squares, with joblib, in the slots of a session: `python joblib_squares.py SESSION_FILE`.

docs/sessions.md describes sessions.
"""

import sys

from joblib import Parallel, delayed, parallel_config

import hal.client.sessions.joblib_backend  # noqa: F401  registers the backend
from hal.client.session import open_session


def square(number: int) -> int:
    return number * number


def main() -> int:
    with open_session(sys.argv[1]) as session, parallel_config("hal", session=session):
        print(sum(Parallel()(delayed(square)(number) for number in range(1_000))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
