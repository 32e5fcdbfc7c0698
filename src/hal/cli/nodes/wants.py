"""`hal wants` and `hal plan`: what waits for nodes, class by class, and which nodes are reserved for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.ask_calls import ReleasableInfo, ReservationInfo, WantInfo

WANTS = ("JOBS", "TASKS", "EACH", "NODES", "QUEUES", "USERS", "HEAD", "WAITS", "SHORT OF")
PLAN = ("JOB", "START", "IN", "UNTIL", "NODES")
RELEASABLE = ("RENTED", "PRICE", "MOVES", "LOSES", "EMPTY IN", "PAYS")
SHOWN_NAMES = 3
SHOWN_NODES = 6


@command("wants", output=True, examples="hal wants\nhal wants -o json | jq '.classes[] | select(.short == \"nodes\")'")
@pass_screen
def wants(screen: Screen) -> None:
    """Jobs that are alike in what each start takes are one line, in the order in which the first of them is to start.

    Held jobs, and jobs that wait for others or for a time, are not shown.
    """
    from hal.client.rest import ask_calls

    found = screen.client.call(ask_calls.wants())

    def render() -> None:
        if found.classes:
            screen.table(WANTS, [_want(one, found.now_ms) for one in found.classes])
        else:
            screen.note("nothing waits for nodes")

    screen.show(found, render)


@command("plan", output=True, examples="hal plan\nhal plan -o json | jq '.reservations[0].nodes'")
@pass_screen
def plan(screen: Screen) -> None:
    """Which waiting jobs have reservations depends on the policy of backfill: under EASY it is the first one."""
    from hal.client.rest import ask_calls

    found = screen.client.call(ask_calls.plan())

    def render() -> None:
        if found.reservations:
            screen.table(PLAN, [_reservation(one, found.now_ms) for one in found.reservations])
        else:
            screen.note("no waiting job has nodes reserved")
        if found.truncated:
            screen.note("there are more reservations than are shown")
        if found.releasable:
            screen.line("")
            screen.table(RELEASABLE, [_releasable(one, found.now_ms) for one in found.releasable])

    screen.show(found, render)


def _want(one: WantInfo, now_ms: int) -> tuple[str, ...]:
    from hal.cli.kit.formats import amounts, span

    rules = [f"{rule.label} {rule.op} {'|'.join(rule.values)}".strip() for rule in one.constraints]
    licences = [f"licence {name} {count}" for name, count in one.licences.items()]
    each = ", ".join([amounts({name: amount for name, amount in one.request.items() if amount}), *rules, *licences])
    return (
        str(one.jobs),
        str(one.tasks),
        each,
        f"{one.nodes} in one {one.within}" if one.within else str(one.nodes),
        _names(one.queues, one.more_queues),
        _names(one.users, one.more_users),
        one.head,
        span(now_ms - one.head_since_ms),
        _short(one),
    )


def _short(one: WantInfo) -> str:
    from hal.client.rest.ask_calls import SHORT_OF_NODES, SHORT_OF_RESOURCES
    from hal.core.model import plural, readable_amount

    if one.short not in (SHORT_OF_NODES, SHORT_OF_RESOURCES):
        return one.short
    lacks = f"{readable_amount(one.resource, one.short_by)} {one.resource}" if one.resource else ""
    if one.short == SHORT_OF_NODES:
        return f"nodes that could hold it ({lacks or plural(one.short_by, 'node')} more)"
    return f"{lacks} on a node" if lacks else f"{plural(one.short_by, 'node')} with all of it free"


def _names(counts: dict[str, int], more: int) -> str:
    names = list(counts)
    rest = len(names) - SHOWN_NAMES + more
    return ",".join(names[:SHOWN_NAMES]) + (f",… ({rest} more)" if rest > 0 else "")


def _releasable(one: ReleasableInfo, now_ms: int) -> tuple[str, ...]:
    """A rented node that can be emptied: what moves, what that loses of the node's time, when it is empty by itself."""
    from hal.cli.kit.formats import span
    from hal.core.model import plural

    by_itself = "not known" if one.empty_ms is None else span(max(one.empty_ms - now_ms, 0))
    loses = span(round(one.lost_node_s * 1000))
    return (one.node, f"{one.price:g}", plural(one.tasks, "task"), loses, by_itself, "yes" if one.pays else "no")


def _reservation(one: ReservationInfo, now_ms: int) -> tuple[str, ...]:
    from hal.cli.kit.formats import NOTHING, instant, span

    rest = len(one.nodes) - SHOWN_NODES
    nodes = ",".join(one.nodes[:SHOWN_NODES]) + (f",… ({rest} more)" if rest > 0 else "")
    waits = NOTHING if one.start_ms is None else span(max(one.start_ms - now_ms, 0))
    return (
        one.job if not one.task else f"{one.job}+{one.task}",
        instant(one.start_ms) or "not known",
        waits,
        instant(one.end_ms) or "no limit",
        nodes,
    )
