"""Count primes in ranges of numbers, each range one task of a session: `python primes.py SESSION_FILE [LIMIT]`.

docs/sessions.md describes sessions.
"""

import sys

from hal.client.session import open_session

WIDTH = 1_000


def primes_from(begin: int) -> int:
    """How many there are among the next thousand numbers."""
    return sum(
        number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
        for number in range(begin, begin + WIDTH)
    )


def main() -> int:
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    with open_session(sys.argv[1]) as session:
        found = sum(session.map(primes_from, range(0, limit, WIDTH)))
    print(f"{found} primes below {limit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
