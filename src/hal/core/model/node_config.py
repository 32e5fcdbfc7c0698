"""`[node]` of hal.toml: what the nodes of this machine are told beside their command lines.

Pure: reading the file is the caller's part. The controller checks the section as it checks the rest of the file; agents
and keepers use it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model.errors import SpecError
from hal.core.model.facts import AUTOMATIC, check_domain

MAX_LABELS: Final = 64
MAX_LABEL: Final = 256
"""Characters of a label's value; its key may have 63."""


class NodeSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[node]`"""

    domain: str = ""
    """Where the machine stands: `dc1/rack3`."""
    labels: dict[str, str] = {}
    """Of each node, beside those of its command line, which win."""


NO_NODE_SECTION: Final = NodeSection()


def checked(section: NodeSection) -> NodeSection:
    """The section, if it makes sense.

    Raises:
        SpecError: names the field.
    """
    check_domain(section.domain)
    check_labels(section.labels, "node.labels")
    return section


def check_labels(labels: dict[str, str], field: str) -> dict[str, str]:
    """Labels that a person gives a node.

    Raises:
        SpecError: too many, too long, or one that HAL makes itself.
    """
    if len(labels) > MAX_LABELS:
        raise SpecError(f"{field}: {len(labels)} labels; at most {MAX_LABELS} are allowed")
    for key, value in labels.items():
        if not 0 < len(key) <= 63 or len(value) > MAX_LABEL or not (key + value).isprintable():
            raise SpecError(f"{field}: '{key[:63]}' is empty, too long or not printable")
        if key.startswith(AUTOMATIC):
            raise SpecError(f"{field}: '{key}': labels that begin with '{AUTOMATIC}' are HAL's own")
    return labels
