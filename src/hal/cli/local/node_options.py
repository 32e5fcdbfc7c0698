"""Options for what a node offers, for `hal up` and `hal agent`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from hal.cli.local.layout import NodePlan

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--cpus", metavar="C", help="Cores of each node (default: an equal share of all)."),
    click.option("--memory", metavar="SIZE", help="Memory of each node (default: an equal share of all)."),
    click.option("--gpus", metavar="G", help="GPUs of each node (default: an equal share of those that are found)."),
    click.option("--resource", metavar="NAME=N", multiple=True, help="Other resource of each node; repeatable."),
    click.option("--label", metavar="K=V", multiple=True, help="Label of each node; repeatable."),
    click.option("--domain", metavar="PATH", default="", help="Location of this machine, such as dc1/rack3."),
    click.option("--address", metavar="HOST", default="", help="Where other machines reach this one."),
    click.option(
        "--max-processes",
        type=click.IntRange(min=0),
        metavar="N",
        help="Most processes and threads of a step (default: 4096; 0: no limit).",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What each node is to offer; None or empty where no option was given."""

    cpu_milli: int | None
    memory_bytes: int | None
    resources: Mapping[str, int]
    """By name, in milli: gpu=2 is 2000."""
    labels: Mapping[str, str]
    domain: str
    max_processes: int | None = None
    """Of each step."""
    address: str = ""
    """Where other machines reach this one."""

    @property
    def given(self) -> bool:
        """Whether any option was given."""
        return self != Offer(cpu_milli=None, memory_bytes=None, resources={}, labels={}, domain="")

    def plan(self, count: int, name: str | None, config: Path) -> tuple[NodePlan, ...]:
        """Plan `count` equal nodes.

        Args:
            config: hal.toml, which may declare GPUs.
        Raises:
            SpecError: as `layout.plan_nodes`; hal.toml is invalid.
        """
        from hal.cli.local.layout import plan_nodes
        from hal.core.model.config_sections import read_own
        from hal.core.model.declared_gpus import declared_gpus
        from hal.core.model.node_config import NODE
        from hal.runtime.config_file import config_text

        return plan_nodes(
            count,
            name=name,
            cpu_milli=self.cpu_milli,
            memory_bytes=self.memory_bytes,
            resources=dict(self.resources),
            labels=dict(self.labels),
            domain=self.domain,
            address=self.address,
            max_processes=self.max_processes,
            declared=declared_gpus(read_own(config_text(config), NODE, str(config)).gpus),
        )


def offer_options(function: F) -> F:
    """Add the options for what nodes offer; the function takes them, checked, as `offer`."""

    @wraps(function)
    def with_offer(
        *args: Any,
        cpus: str | None,
        memory: str | None,
        gpus: str | None,
        resource: Sequence[str],
        label: Sequence[str],
        domain: str,
        address: str,
        max_processes: int | None,
        **given: Any,
    ) -> Any:
        offer = replace(
            _offer(cpus, memory, gpus, resource, label, domain), max_processes=max_processes, address=address
        )
        return function(*args, offer=offer, **given)

    decorated = with_offer
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return cast("F", decorated)


def foreground_options(function: F) -> F:
    """Add `--foreground` and `--on-stop`."""
    stays = click.option(
        "--foreground",
        is_flag=True,
        help="Do not return: stay, tell a service manager when HAL works, and stop HAL on SIGTERM or Ctrl-C.",
    )
    on_stop = click.option(
        "--on-stop",
        type=click.Choice(["leave", "kill"]),
        default="leave",
        show_default=True,
        help="With --foreground: what becomes then of running steps; `leave`: they continue.",
    )
    return stays(on_stop(function))


def _offer(
    cpus: str | None,
    memory: str | None,
    gpus: str | None,
    resource: Sequence[str],
    label: Sequence[str],
    domain: str,
) -> Offer:
    """
    Raises:
        SpecError: an amount is malformed, a resource or label is given twice, or there is no core or memory at all.
    """
    from hal.cli.kit.pairs import pairs
    from hal.core.model import Resources, SpecError, parse_amount, resource_name

    cpu_milli = None if cpus is None else parse_amount("cpu", cpus, field="--cpus")
    memory_bytes = None if memory is None else parse_amount("memory", memory, field="--memory")
    if cpu_milli == 0 or memory_bytes == 0:
        raise SpecError(
            "--cpus, --memory: a node needs some of both to run anything",
            hint="without them it has all of this machine",
        )
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
