"""What is known of nodes: labels, capacity and price, as the controller last showed them; kept for those that left."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from hal.planes.observability.history.costing import KnownNode


class _Node(Struct):
    name: str
    labels: dict[str, str] = {}
    capacity: dict[str, int] = {}


class _Nodes(Struct):
    nodes: list[_Node] = []


class _Advice(Struct):
    space: str = ""


class _Prices(Struct):
    advice: _Advice
    keys: list[str | int] = []
    values: list[float | None] = []
    cursor: str = ""


_NODES: Final = Decoder(_Nodes)
_PRICES: Final = Decoder(_Prices)


def nodes_in(body: bytes) -> dict[str, KnownNode]:
    """Of the answer to `GET /v1/nodes`."""
    return {one.name: KnownNode(labels=one.labels, capacity=one.capacity) for one in _NODES.decode(body).nodes}


def prices_in(body: bytes) -> tuple[dict[str, float], str]:
    """Of the answer to `GET /v1/advice/price`: by node, and the cursor of the next page."""
    found = _PRICES.decode(body)
    if found.advice.space != "nodes":
        return {}, ""
    pairs = zip(found.keys, found.values, strict=False)
    return {str(name): max(value, 0.0) for name, value in pairs if value is not None}, found.cursor


def with_prices(nodes: Mapping[str, KnownNode], prices: Mapping[str, float]) -> dict[str, KnownNode]:
    """The nodes with the prices that hold now."""
    return {name: replace(node, price=prices.get(name)) for name, node in nodes.items()}


def read_nodes(connection: sqlite3.Connection) -> dict[str, KnownNode]:
    """All that were ever kept."""
    return {
        name: KnownNode(labels=msgspec.json.decode(labels), capacity=msgspec.json.decode(capacity))
        for name, labels, capacity in connection.execute("SELECT name, labels, capacity FROM nodes")
    }


def keep_nodes(nodes: Mapping[str, KnownNode], connection: sqlite3.Connection) -> None:
    """Keep what is new of them."""
    connection.executemany(
        "INSERT INTO nodes VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
        "SET labels = excluded.labels, capacity = excluded.capacity",
        [
            (name, msgspec.json.encode(node.labels).decode(), msgspec.json.encode(node.capacity).decode())
            for name, node in nodes.items()
        ],
    )
