"""Tasks that fail, and what their session knows of them: `python failures.py SESSION_FILE`.

docs/sessions.md describes sessions.
"""

from __future__ import annotations

import sys

from hal.client.session import open_session


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def main(file: str) -> None:
    with open_session(file) as session:
        tagged = session.options(tags="means", attempts=2)
        futures = [tagged.submit(mean, [1.0] * length) for length in range(5)]
        good = [future.result() for future in session.progress(futures, "means") if not future.exception()]
        print(f"{len(good)} means")
        for failure in session.failures(tag="means"):
            print(f"{failure.function} failed after {failure.attempts} attempts: {failure.error}")


if __name__ == "__main__":
    main(sys.argv[1])
