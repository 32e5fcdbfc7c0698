"""`hal offer`: machines that could be rented, so that work which no node could hold is accepted and waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.core.model.offer import Offer

COLUMNS = ("OFFER", "MACHINES", "EACH", "LABELS", "USD/HOUR", "EXPIRES")

offer = NounGroup(
    "offer",
    help="Nothing is placed on an offer: it only lets work wait for a machine that somebody would have to rent.",
    epilog="Example: hal offer put a100 --resources cpu=64,memory=512GiB,gpu=8 --count 4",
)


@command(
    "put",
    output=True,
    examples="""
    hal offer put a100 --resources cpu=64,memory=512GiB,gpu=8 --label pool=spot --count 4 --expires-in 10m
    """,
)
@click.argument("name")
@click.option("--resources", required=True, metavar="AMOUNTS", help="Of one machine: cpu=64,memory=512GiB.")
@click.option("--label", "labels", multiple=True, metavar="K=V", help="A label that each would have; repeatable.")
@click.option("--count", type=int, default=1, help="How many could be rented (default: 1).")
@click.option("--price", type=float, metavar="USD", help="Price of one for an hour, for people to see.")
@click.option("--expires-in", metavar="TIME", default="1h", help="Time for which it holds (default: 1h, at most 7d).")
@pass_screen
def put(
    screen: Screen,
    name: str,
    resources: str,
    labels: Sequence[str],
    count: int,
    price: float | None,
    expires_in: str,
) -> None:
    """Offer machines that could be rented, or offer them again; for operators and programs.

    Jobs that none of the nodes could hold are accepted if one of these machines could, and wait for it.
    """
    from hal.cli.kit.pairs import pairs
    from hal.core.model import Resources

    made = screen.client.put_offer(
        name,
        Resources.parse(resources, field="--resources").plain(),
        labels=pairs("--label", labels),
        count=count,
        price_microusd_per_hour=None if price is None else round(price * 1_000_000),
        expires_in=expires_in,
    )
    screen.show(made, lambda: screen.line(f"{made.name} offered"))


@command("list", output=True, examples="hal offer list")
@pass_screen
def list_offers(screen: Screen) -> None:
    """List the machines that could be rented."""
    from hal.cli.kit.formats import amounts, instant

    found = screen.client.offers()

    def row(one: Offer) -> tuple[str, ...]:
        price = "" if one.price_microusd_per_hour is None else f"{one.price_microusd_per_hour / 1_000_000:.4g}"
        labels = ",".join(f"{key}={value}" for key, value in sorted(one.labels.items()))
        return one.name, str(one.count), amounts(one.resources), labels, price, instant(one.expires_ms)

    screen.show_list(found, COLUMNS, row, "nothing is offered; offer a machine: hal offer put NAME --resources cpu=64")


@command("withdraw", output=True, examples="hal offer withdraw a100")
@click.argument("name")
@pass_screen
def withdraw(screen: Screen, name: str) -> None:
    """Withdraw an offer. Jobs that wait for it wait on."""
    withdrawn = screen.client.withdraw_offer(name)
    screen.show(withdrawn, lambda: screen.line(f"{withdrawn.name} withdrawn"))


for one in (put, list_offers, withdraw):
    offer.add_command(one)
