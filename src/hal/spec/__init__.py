"""The generated specifications under `spec/`: what each file must hold, and whether it does.

`python -m hal.spec` writes them, `python -m hal.spec --check` fails when one has drifted from the code.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hal.core.model import spec_schema
from hal.core.model.gate_protocol import protocol_schema
from hal.core.model.policy_text import policy_schema


def openapi() -> dict[str, Any]:
    """The OpenAPI document of the controller's REST API."""
    from hal.daemons.controller.api.table import document

    return document()


def observability() -> dict[str, Any]:
    """The OpenAPI document of the collector's REST API."""
    from hal.daemons.collector.interface import INTERFACE

    return INTERFACE.document()


def shelf() -> dict[str, Any]:
    """The OpenAPI document of the daemon in examples/shelf."""
    path = Path(__file__).parents[3] / "examples" / "shelf" / "shelf.py"
    document: dict[str, Any] = runpy.run_path(str(path))["INTERFACE"].document()
    return document


def rest() -> str:
    """The reference page of the REST API."""
    from hal.daemons.controller.api.table import page

    return page()


def config() -> str:
    """The reference page of hal.toml."""
    from hal.core.model.config_sections import reference
    from hal.daemons.controller.config_sections import SECTIONS

    return reference(SECTIONS)


def metrics() -> str:
    """The reference page of metrics."""
    from hal.spec.metrics import page

    return page()


def frames() -> str:
    """The wire in words, tables and examples."""
    from hal.wire.document import document

    return document()


DOCUMENTS: Final[dict[str, Callable[[], dict[str, Any] | str]]] = {
    "jobspec.schema.json": spec_schema,
    "policy.schema.json": policy_schema,
    "openapi/hal-v1.json": openapi,
    "openapi/observability-v1.json": observability,
    "openapi/shelf-v1.json": shelf,
    "rest.md": rest,
    "config.md": config,
    "frames.md": frames,
    "metrics.md": metrics,
    "gate.schema.json": protocol_schema,
}
"""What generates each file, by its path below `spec/`."""


def rendered(document: dict[str, Any] | str) -> bytes:
    """A document as it stands in its file: text as it is; JSON in the generator's order, indented by two spaces."""
    if isinstance(document, str):
        return document.encode()
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def drifted(root: Path) -> list[str]:
    """Files below `root` that are missing or differ from what the code generates."""
    stale = []
    for name, generate in DOCUMENTS.items():
        path = root / name
        if not path.is_file() or path.read_bytes() != rendered(generate()):
            stale.append(name)
    return stale


def write(root: Path) -> list[str]:
    """Generate every file below `root`; those that changed."""
    changed = drifted(root)
    for name in changed:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rendered(DOCUMENTS[name]()))
    return changed
