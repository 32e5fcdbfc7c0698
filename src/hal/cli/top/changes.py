"""What `hal top` can change: what a change would do is asked first, by a dry run, so that the controller's rights
decide and not a copy of them here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hal.client.async_client import AsyncClient
from hal.client.rest import calls
from hal.client.rest.access_calls import who_am_i
from hal.client.rest.views import Outcome
from hal.core.model import plural

OPERATING: Final = ("operator", "admin")
NODE_ACTIONS: Final = {"drain": "drain", "cordon": "cordon", "resume": "uncordon"}
MAX_SHOWN: Final = 10


class Proposal(NamedTuple):
    """A change that may be made."""

    verb: str
    ids: tuple[str, ...]
    """Those that it would change."""
    question: tuple[str, ...]
    refused: tuple[str, ...]
    """Why others would not be changed."""


async def propose_jobs(client: AsyncClient, verb: str, ids: Sequence[str]) -> Proposal:
    """What `cancel`, `hold` or `release` of these jobs would do.

    Raises:
        HALError: nothing can be said.
    """
    outcomes = await client.call(calls.control(verb, ids, dry_run=True))
    able = [one for one in outcomes if one.ok]
    refused = tuple(one.detail or f"{one.id}: {one.code}" for one in outcomes if not one.ok)
    tasks = sum(one.tasks for one in able)
    noun = "job" if len(able) == 1 else "jobs"
    named = ", ".join(one.id for one in able[:MAX_SHOWN]) + (", …" if len(able) > MAX_SHOWN else "")
    question = f"{verb} {noun} {named}" + (f" ({plural(tasks, 'task')})" if tasks > len(able) else "") + "?"
    return Proposal(verb, tuple(one.id for one in able), (question, *refused[:MAX_SHOWN]), refused)


async def propose_nodes(client: AsyncClient, verb: str, names: Sequence[str]) -> Proposal:
    """What `drain`, `cordon` or `resume` of these nodes would do.

    Raises:
        HALError: nothing can be said.
    """
    who = await client.call(who_am_i())
    if who.role not in OPERATING or who.read_only:
        return Proposal(verb, (), (), (f"only operators {verb} nodes; you are {who.user}, {who.role}",))
    named = ", ".join(names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
    question = f"{verb} {'node' if len(names) == 1 else 'nodes'} {named}?"
    return Proposal(verb, tuple(names), (question,), ())


async def carry_out(client: AsyncClient, proposal: Proposal) -> str:
    """Make the change; returns what became of it, in one line.

    Raises:
        HALError: nothing was changed.
    """
    if proposal.verb in NODE_ACTIONS:
        outcomes = await client.call(calls.control_nodes(NODE_ACTIONS[proposal.verb], proposal.ids))
    else:
        outcomes = await client.call(calls.control(proposal.verb, proposal.ids))
    return summary(outcomes)


def summary(outcomes: Sequence[Outcome]) -> str:
    """What became of each, or how many worked."""
    bad = [one.detail or f"{one.id}: {one.code}" for one in outcomes if not one.ok]
    good = [one for one in outcomes if one.ok]
    if len(good) == 1:
        done = f"{good[0].id} {good[0].state}".strip()
    else:
        done = f"{len(good)} done" if good else ""
    return "; ".join(filter(None, (done, *bad[:1], f"and {len(bad) - 1} more refused" if len(bad) > 1 else "")))
