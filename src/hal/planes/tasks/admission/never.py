"""What could never start, even if nothing else ran: judged alike when it is submitted, checked, changed and explained.

Pure. O(limits of its owner) for the policy; for nodes one question to the engine for each class, and one more where
bookings return for ever. Only what is certain is called never: that a node is down, a queue closed or a limit full
today changes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.model import Duration, JobSpec, Never, Reason, Resources, SpecError, format_amount, format_duration
from hal.core.model.groups import total_request
from hal.core.model.occurrences import current_occurrence
from hal.core.model.policy import Booking, Limit, Policy
from hal.core.model.policy_scope import Owner, ledger, ledger_text
from hal.core.model.returning_bookings import ReturningBookings
from hal.core.model.units import limit_ms
from hal.planes.tasks.engine.view import EngineView

_FIRST_SHIFTED_BIT: Final = 59
"""Resource-hours of more bits than this are counted in coarser units, as the engine counts them."""
_HOUR_S: Final = 3_600
_PER: Final = (" per node", " in all groups together")


class NeverStartsError(SpecError):
    """What is asked for could not start even if nothing else ran."""

    what: Reason = Reason.IMPOSSIBLE
    """The kind of what keeps it."""

    @classmethod
    def of(cls, never: Never) -> NeverStartsError:
        """The refusal of a submission or a change."""
        wait = "submit it with wait_for_change (--wait-for-change), and it waits until then"
        error = cls(never.text, hint=f"{never.mend}; or {wait}" if never.mend else wait)
        error.what = never.reason
        return error


def never_by_policy(spec: JobSpec, limits: Iterable[Limit], policy: Policy) -> Never | None:
    """The first limit in whose scope the job is and that is too small for one task of it, whatever else runs.

    Args:
        spec: admitted in everything else, with its walltime.
        limits: those in whose scope it is.
    """
    owner = Owner(spec.queue, spec.account, spec.user, spec.qos)
    for limit in limits:
        found = _beyond(spec, limit, policy, owner)
        if found is not None:
            return found
    return None


def _beyond(spec: JobSpec, limit: Limit, policy: Policy, owner: Owner) -> Never | None:
    scope = ledger(limit, owner, policy.accounts)
    who = f"limit '{limit.name}' ({'everybody' if scope is None else ledger_text(limit, scope)})"
    raised = f"that limit is raised (`hal limit set {limit.name}`)"
    if limit.running == 0:
        return Never(reason=Reason.LIMIT, because=f"{who} allows 0 tasks at once", until=raised)
    on_nodes = f" on {spec.nodes} nodes" if spec.nodes > 1 else ""
    for name, own in (limit.resources or Resources()).items():
        asked = total_request(spec).get(name, 0)
        most = _with_borrowed(limit, name, own, asked, policy)
        if asked > most:
            shared = f" and its cohort '{limit.cohort}'" if limit.cohort else ""
            return Never(
                reason=Reason.LIMIT, resource=name, asked=asked, available=most, until=raised,
                because=f"{who}{shared} allow{'' if shared else 's'} {format_amount(name, most)} {name} at once and "
                f"this asks for {format_amount(name, asked)}{on_nodes}",
                mend=f"ask for at most {_each(spec, name, most)} {name}{on_nodes and _PER[bool(spec.groups)]}",
            )  # fmt: skip
    for name, hours in (limit.hours or Resources()).items():
        asked = total_request(spec).get(name, 0)
        if not asked:
            continue
        allowed = f"{who} allows {format_amount(name, hours)} {name}-hours each {format_duration(limit.period)}"
        wall_ms = limit_ms(spec.walltime)
        if wall_ms is None:
            return Never(
                reason=Reason.LIMIT, resource=name, until=raised.replace("raised", "removed"),
                because=f"{allowed} and this has no walltime, so its use is not known", mend="give it a walltime",
            )  # fmt: skip
        if _unit_seconds(asked, hours, wall_ms) > (hours * _HOUR_S) >> _shift(hours):
            seconds = -(-wall_ms // 1000)
            longest = hours * _HOUR_S // asked
            shorter = f"ask for a walltime of at most {format_duration(Duration(longest * 1000))}"
            return Never(
                reason=Reason.LIMIT, resource=name, until=raised, mend=shorter if longest else "ask for less",
                because=f"{allowed} and this asks for {format_amount(name, asked * seconds // _HOUR_S)}",
            )  # fmt: skip
    return None


def _each(spec: JobSpec, name: str, most: int) -> str:
    return format_amount(name, most if spec.groups else most // spec.nodes)


def _with_borrowed(limit: Limit, name: str, own: int, asked: int, policy: Policy) -> int:
    """How much of a resource one start may take within the limit when its whole cohort is idle."""
    if not limit.cohort or asked <= own:
        return own
    members = (other for other in policy.limits.values() if other.cohort == limit.cohort)
    whole = sum(other.resources.get(name, 0) for other in members if other.resources is not None)
    return whole if limit.borrow is None else min(whole, own + limit.borrow.get(name, 0))


def _shift(hours: int) -> int:
    return max(0, (hours * _HOUR_S).bit_length() - _FIRST_SHIFTED_BIT)


def _unit_seconds(asked: int, hours: int, walltime_ms: int) -> int:
    """What one start takes from a ledger of hours, in the engine's units."""
    return max(asked >> _shift(hours), 1) * -(-walltime_ms // 1000)


def never_on_nodes(
    engine: EngineView,
    request: ClassSpec,
    walltime: Duration | None,
    policy: Policy,
    returning: ReturningBookings,
    now_ms: int,
) -> Never | None:
    """Why today's nodes and offers, all of them free, could not hold it for that long."""
    if limit_ms(walltime) is None:
        walltime = None
    found = engine.never_fits(request)
    if found is not None:
        return found
    if request.booking:
        return _never_in(engine, request, policy.bookings.get(request.booking), now_ms)
    kept = returning.closed_to(walltime, now_ms)
    if not kept:
        return None
    if engine.never_fits(request, without=frozenset().union(*(one.nodes for one in kept))) is None:
        return None
    names = sorted({name for one in kept for name in one.bookings})
    gap = max(one.gap_ms for one in kept)
    which = f"booking '{names[0]}' returns" if len(names) == 1 else f"bookings {', '.join(names[:3])} return"
    wants = "has no walltime" if walltime is None else f"may run for {format_duration(walltime)}"
    free = format_duration(Duration(gap))
    return Never(
        reason=Reason.BOOKING,
        because=f"{which} without end, the nodes are free for at most {free} between, and this {wants}",
        until=f"the booking{'s are' if len(names) > 1 else ' is'} changed (`hal booking set {names[0]}`)",
        mend=f"ask for a walltime of at most {free}" if gap else "ask for other nodes",
    )


def _never_in(engine: EngineView, request: ClassSpec, booking: Booking | None, now_ms: int) -> Never | None:
    """Why it could not start in its own booking."""
    name = request.booking
    if booking is None or current_occurrence(booking, now_ms) is None:
        gone = f"booking '{name}' {'was removed' if booking is None else 'is over'}"
        return Never(reason=Reason.BOOKING, because=gone, until=f"there is a booking '{name}' again")
    if not booking.nodes:
        return None
    found = engine.never_fits(request, only=frozenset(booking.nodes))
    if found is None:
        return None
    return replace(
        found, reason=Reason.BOOKING, because=f"on the nodes of booking '{name}', {found.because}",
        until="the booking holds other nodes",
    )  # fmt: skip
