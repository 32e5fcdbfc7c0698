"""The owners of a log's jobs: queue, account and user of each, from the log's numbers or assigned by a seed.

Pure given the seed. O(jobs). A log in the Standard Workload Format has numbers for users, groups and queues: they
become the names `u7`, `g3` and `q2`, unless the header names the queue or group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.model.errors import SpecError, shown
from hal.core.model.job import is_name
from hal.core.model.policy import DEFAULT_QUEUE, Account, Policy
from hal.core.model.policy_check import near
from hal.daemons.twin.swf import Workload

IntArray = NDArray[np.int64]

UNKNOWN_USER: Final = "unknown"
"""The user if the log does not name one."""
USERS_PER_ACCOUNT: Final = 5
"""Users that are invented below an account if neither log nor policy names any."""
ACCOUNTS_MAX: Final = 10_000
"""Accounts that can be invented."""
NAMES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Queue, account and user of each job as indexes into tables of names; index arrays have the shape (J,)."""

    queues: tuple[str, ...]
    accounts: tuple[str, ...]
    users: tuple[str, ...]
    queue: IntArray
    account: IntArray
    user: IntArray


@dataclass(frozen=True, slots=True)
class Assignment:
    """How jobs are assigned: account -> its fraction of the processor-seconds, and its users."""

    parts: dict[str, float]
    users: dict[str, tuple[str, ...]]


def of_log(workload: Workload, groups: Mapping[int, str], queues: Mapping[int, str]) -> Population:
    """Read the owners from the log. `groups` and `queues` are the header's names by number."""
    account, accounts = _named(workload.group, workload.jobs, groups, "g", "")
    queue, queue_names = _named(workload.queue, workload.jobs, queues, "q", DEFAULT_QUEUE)
    user, users = _named(workload.user, workload.jobs, {}, "u", UNKNOWN_USER)
    return Population(queue_names, accounts, users, queue, account, user)


def has_groups(workload: Workload) -> bool:
    """Whether the log gives the group of any of its jobs."""
    return workload.group is not None and bool((workload.group >= 0).any())


def in_queue(population: Population, queue: str) -> Population:
    """Return the same owners with all jobs in one queue."""
    of = np.zeros(population.queue.size, np.int64)
    return Population((queue,), population.accounts, population.users, of, population.account, population.user)


def assign_accounts(workload: Workload, population: Population, assignment: Assignment, seed: int) -> Population:
    """Assign accounts: each user of the log to one account, or each job if the log knows no users.

    Users are taken in an order drawn by `seed`; each goes to the account that is farthest behind its fraction of the
    processor-seconds. Without users, jobs are drawn one by one, and users below the account evenly.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    names = tuple(assignment.parts)
    part = np.array([assignment.parts[name] for name in names], np.float64)
    part /= part.sum()
    if bool((workload.user >= 0).any()):
        work = workload.procs.astype(np.float64) * workload.run_s
        of_user = np.bincount(population.user, weights=work, minlength=len(population.users))
        account_of = np.zeros(of_user.size, np.int64)
        given = np.zeros(part.size)
        for user in random.permutation(of_user.size).tolist():
            behind = int(np.argmin((given + of_user[user]) / part))
            account_of[user] = behind
            given[behind] += of_user[user]
        return Population(
            population.queues, names, population.users, population.queue, account_of[population.user], population.user
        )
    account = np.searchsorted(np.cumsum(part), random.random(workload.jobs), side="right").clip(max=part.size - 1)
    drawn = random.random(workload.jobs)
    users: list[str] = []
    user = np.zeros(workload.jobs, np.int64)
    for place, name in enumerate(names):
        mine = assignment.users[name]
        rows = np.flatnonzero(account == place)
        user[rows] = len(users) + (drawn[rows] * len(mine)).astype(np.int64)
        users.extend(mine)
    return Population(population.queues, names, tuple(users), population.queue, account.astype(np.int64), user)


def parse_assignment(text: str, policy: Policy) -> Assignment:
    """Parse how jobs are assigned: `policy`, a number, or `physics=1,biology=2`.

    `policy`: the accounts that the policy declares and that have no account below them, equally. A number: that many
    invented ones, a1, a2, … With `=`: their fractions of the processor-seconds.

    Raises:
        SpecError: it is none of these, or the policy does not declare an account.
    """
    if text == "policy":
        parents = {account.parent for account in policy.accounts.values()}
        parts = {name: 1.0 for name in policy.accounts if name not in parents}
        if not parts:
            raise SpecError("--accounts policy: no account is declared", hint="give a number or NAME=PART,…")
    elif text.isascii() and text.isdigit():
        if not 1 <= int(text[:9]) <= ACCOUNTS_MAX:
            raise SpecError(f"--accounts {shown(text)}: from 1 to {ACCOUNTS_MAX} accounts can be invented")
        parts = {f"a{number}": 1.0 for number in range(1, int(text) + 1)}
    else:
        parts = _parts(text)
    if policy.accounts:
        check_known("account", list(parts), policy.accounts, "--accounts")
    users = {name: _users_below(name, policy) for name in parts}
    return Assignment(parts, users)


def check_known(kind: str, names: Sequence[str], declared: Mapping[str, object], where: str, hint: str = "") -> None:
    """Check that the policy declares every one of these names.

    Raises:
        SpecError: it does not.
    """
    unknown = [name for name in names if name not in declared]
    if not unknown:
        return
    listed = ", ".join(sorted(declared)[:NAMES_SHOWN]) + (", …" if len(declared) > NAMES_SHOWN else "")
    more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    raise SpecError(
        f"{where}: {kind} '{shown(unknown[0])}'{more} is not declared{near(unknown[0], declared)}",
        hint=f"declared: {listed}{f'; {hint}' if hint else ''}",
    )


def _users_below(account: str, policy: Policy) -> tuple[str, ...]:
    declared = policy.accounts.get(account, Account())
    return tuple(declared.users) or policy.users or tuple(f"u{n}" for n in range(1, USERS_PER_ACCOUNT + 1))


def _parts(text: str) -> dict[str, float]:
    parts: dict[str, float] = {}
    for piece in text.split(","):
        name, equals, part = piece.strip().partition("=")
        try:
            amount = float(part) if equals else 1.0
        except ValueError:
            amount = 0.0
        if not is_name(name) or not 0.0 < amount < float("inf") or name in parts:
            raise SpecError(
                f"--accounts: '{shown(piece)}' is not NAME=PART, given once, with a part above 0",
                hint="write `log`, `policy`, a number, or for example physics=1,biology=2",
            )
        parts[name] = amount
    if len(parts) > ACCOUNTS_MAX:
        raise SpecError(f"--accounts: {len(parts)} names; at most {ACCOUNTS_MAX}")
    return parts


def _named(
    numbers: IntArray | None, jobs: int, names: Mapping[int, str], letter: str, unknown: str
) -> tuple[IntArray, tuple[str, ...]]:
    """Convert numbers to indexes into a table of names; numbers below 0 are `unknown`."""
    if numbers is None:
        return np.zeros(jobs, np.int64), (unknown,)
    found, place = np.unique(np.maximum(numbers, -1), return_inverse=True)
    table: list[str] = []
    for number in found.tolist():
        name = names.get(number, "")
        if not is_name(name) or name in table:
            name = f"{letter}{number}"
        table.append(unknown if number < 0 else f"{name}_{number}" if name in table else name)
    return place.astype(np.int64), tuple(table)
