"""Options that say what a node offers: `hal up` for the nodes of this machine, `hal agent` for one of another HAL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from hal.cli.layout import NodePlan

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--cpus", metavar="C", help="Cores of a node (default: all; of several, an equal share)."),
    click.option("--memory", metavar="SIZE", help="Memory of a node (default: as cores)."),
    click.option("--gpus", metavar="G", help="GPUs of a node (default: as cores, of those that NVML sees)."),
    click.option("--resource", metavar="NAME=N", multiple=True, help="Another resource of a node; repeatable."),
    click.option("--label", metavar="K=V", multiple=True, help="A label of a node; repeatable."),
    click.option("--domain", metavar="PATH", default="", help="Where this machine stands: dc1/rack3."),
    click.option(
        "--max-processes",
        type=click.IntRange(min=0),
        metavar="N",
        help="Processes and threads that a step may have (default: 4096; 0: no limit).",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What each node is to offer; None and nothing where it was not said."""

    cpu_milli: int | None
    memory_bytes: int | None
    resources: Mapping[str, int]
    """By name, in milli: gpu=2 is 2000."""
    labels: Mapping[str, str]
    domain: str
    max_processes: int | None = None
    """Of each step."""

    @property
    def said(self) -> bool:
        """Whether anything was said."""
        return self != Offer(cpu_milli=None, memory_bytes=None, resources={}, labels={}, domain="")

    def plan(self, count: int, name: str | None) -> tuple[NodePlan, ...]:
        """So many equal nodes, as `layout.plan_nodes` makes them.

        Raises:
            SpecError: as there.
        """
        from hal.cli.layout import plan_nodes

        return plan_nodes(
            count,
            name=name,
            cpu_milli=self.cpu_milli,
            memory_bytes=self.memory_bytes,
            resources=dict(self.resources),
            labels=dict(self.labels),
            domain=self.domain,
            max_processes=self.max_processes,
        )


def offer_options(function: F) -> F:
    """What nodes offer; the function takes it as `offer`, checked."""

    @wraps(function)
    def with_offer(
        *args: Any,
        cpus: str | None,
        memory: str | None,
        gpus: str | None,
        resource: Sequence[str],
        label: Sequence[str],
        domain: str,
        max_processes: int | None,
        **given: Any,
    ) -> Any:
        offer = replace(_offer(cpus, memory, gpus, resource, label, domain), max_processes=max_processes)
        return function(*args, offer=offer, **given)

    decorated = with_offer
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return cast("F", decorated)


def _offer(
    cpus: str | None,
    memory: str | None,
    gpus: str | None,
    resource: Sequence[str],
    label: Sequence[str],
    domain: str,
) -> Offer:
    """Raises: SpecError: an amount that is none, a resource or label given twice, no core or memory at all."""
    from hal.cli.options import pairs
    from hal.core.model import Resources, SpecError, parse_amount, resource_name

    cpu_milli = None if cpus is None else parse_amount("cpu", cpus, field="--cpus")
    memory_bytes = None if memory is None else parse_amount("memory", memory, field="--memory")
    if cpu_milli == 0 or memory_bytes == 0:
        raise SpecError("--cpus, --memory: a node without any cannot run anything")
    others = {} if gpus is None else {"gpu": gpus}
    others |= {resource_name(key): text for key, text in pairs("--resource", resource).items()}
    amounts = Resources({key: parse_amount(key, text, field=key) for key, text in others.items()})
    return Offer(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        resources=dict(amounts),
        labels=pairs("--label", label),
        domain=domain,
    )
