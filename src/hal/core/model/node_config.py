"""`[node]` of hal.toml: settings of this machine's nodes beside their command lines.

Pure: the caller reads the file. The controller checks the section with the rest of the file; agents and keepers use it.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.config_sections import Section, check_range
from hal.core.model.declared_gpus import GpuSection, check_gpus
from hal.core.model.errors import SpecError, shown
from hal.core.model.facts import AUTOMATIC, check_domain
from hal.core.model.units import Duration, parse_amount

MAX_LABELS: Final = 64
MAX_LABEL: Final = 256
"""Characters of a label's value; its key may have 63."""
MAX_CHECKS: Final = 32
"""Health checks of a site."""
SHORTEST_EVERY_MS: Final = 1_000
"""Checks are not run more often."""
SCRIPT_TIMEOUT_MS: Final = 300_000
"""How long a prolog or an epilog may take by default."""
LONGEST_SCRIPT_MS: Final = 86_400_000
LONGEST_CHECK_MS: Final = 3_600_000
MAX_FAILURES: Final = 1_000
MAX_SCRIPT_WORDS: Final = 64
"""Words of the command line of a prolog or an epilog."""
MAX_UID: Final = (1 << 32) - 2
"""The largest user id."""
MAX_OUTPUT_DAYS: Final = 36_500
LONGEST_SAMPLES_MS: Final = 3_600_000
MAX_SAMPLED_ATTEMPTS: Final = 1_000
LEAST_FILES_CACHE: Final = 16 << 20
ALL_DEVICES: Final = "all"
STANDARD_DEVICES: Final = "standard"
BIND_AUTO: Final = "auto"
BIND_CPUS: Final = "cpus"
BIND_NONE: Final = "none"
MAX_DEVICES: Final = 32
"""Words of `devices`."""
BUILT_IN: Final = frozenset({"disk", "read-only", "memory", "clock"})
"""The names of HAL's own checks."""

_CHECK: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62})?\Z")


class HealthSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[node.health]`: limits of HAL's own checks."""

    every: Annotated[Duration, Meta(description="interval of HAL's own health checks")] = Duration(30_000)
    disk_free: Annotated[str, Meta(description="least free space of HAL_HOME's file system; 0: not checked")] = "16MiB"
    memory_free: Annotated[str, Meta(description="least available memory of the machine; 0: not checked")] = "0"
    clock_skew: Annotated[
        Duration, Meta(description="largest difference between this clock and the controller's; 0: not checked")
    ] = Duration(5_000)

    @property
    def disk_free_bytes(self) -> int:
        return parse_amount("memory", self.disk_free, field="node.health.disk_free")

    @property
    def memory_free_bytes(self) -> int:
        return parse_amount("memory", self.memory_free, field="node.health.memory_free")


class TelemetrySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[node.telemetry]`: what the agent measures while a collector is there."""

    every: Annotated[Duration, Meta(description="interval of samples; 0: nothing is measured")] = Duration(10_000)
    outputs: Annotated[bool, Meta(description="send what jobs print, too")] = True
    attempts: Annotated[
        int, Meta(description="running attempts of which use is measured; of more, those that began first")
    ] = 256


class CheckSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[node.checks.NAME]`: a program of the site; the node is healthy while it exits with 0."""

    command: Annotated[tuple[str, ...], Meta(description="program, by its absolute path, and arguments")]
    every: Annotated[Duration, Meta(description="from the end of one run to the start of the next")] = Duration(60_000)
    timeout: Annotated[Duration, Meta(description="a run that takes longer is killed and has failed")] = Duration(
        10_000
    )
    failures: Annotated[
        int, Meta(description="consecutive failed runs before the check fails; for the first run, one")
    ] = 1


class NodeSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[node]`"""

    domain: Annotated[str, Meta(description="location of the machine: `dc1/rack3`")] = ""
    labels: Annotated[
        dict[str, str], Meta(description="labels of each node; those on its command line take precedence")
    ] = {}
    health: HealthSection = HealthSection()
    telemetry: TelemetrySection = TelemetrySection()
    checks: dict[str, CheckSection] = {}
    prolog: Annotated[
        tuple[str, ...],
        Meta(description="program and arguments, run before the first process of an attempt on the node; empty: none"),
    ] = ()
    epilog: Annotated[tuple[str, ...], Meta(description="the same, run after its last process there has ended")] = ()
    prolog_timeout: Annotated[Duration, Meta(description="a prolog that takes longer is killed and has failed")] = (
        Duration(SCRIPT_TIMEOUT_MS)
    )
    epilog_timeout: Annotated[Duration, Meta(description="an epilog that takes longer is killed and has failed")] = (
        Duration(SCRIPT_TIMEOUT_MS)
    )
    min_uid: Annotated[
        int, Meta(description="if root started the node: smallest user id whose jobs run there, except root's own")
    ] = 1_000
    no_new_privileges: Annotated[
        bool,
        Meta(description="if root started the node: jobs of others gain no rights by setuid programs, such as sudo"),
    ] = False
    devices: Annotated[
        tuple[str, ...],
        Meta(description="device files that steps may use: `all`, or `standard` and patterns of others (`/dev/fuse`)"),
    ] = (ALL_DEVICES,)
    bind: Annotated[
        str,
        Meta(
            description="CPUs of steps: `cpus`, each on CPUs of its own; `none`; `auto`: `cpus` on a node that is the "
            "whole machine, if no other node there binds"
        ),
    ] = BIND_AUTO
    gpus: tuple[GpuSection, ...] = ()
    """All of the machine, instead of those that are found."""
    outputs_days: Annotated[
        int, Meta(description="days after which outputs to which nothing was written are deleted; 0: never")
    ] = 180
    outputs_size: Annotated[
        str, Meta(description="most that all outputs of the node take; the longest unwritten go first; 0: no limit")
    ] = "0"

    files_cache: Annotated[
        str, Meta(description="most that each node keeps of what was shipped to it; the longest unused goes first")
    ] = "2GiB"

    @property
    def outputs_bytes(self) -> int:
        return parse_amount("memory", self.outputs_size, field="node.outputs_size")

    @property
    def files_cache_bytes(self) -> int:
        return parse_amount("memory", self.files_cache, field="node.files_cache")


NO_NODE_SECTION: Final = NodeSection()


def check_node_section(section: NodeSection) -> NodeSection:
    """Check the section and return it.

    Raises:
        SpecError: names the field.
    """
    check_domain(section.domain)
    check_labels(section.labels, "node.labels")
    health = section.health
    if health.disk_free_bytes < 0 or health.memory_free_bytes < 0:  # parsed here to check that they are valid amounts
        raise SpecError("node.health: a negative amount")
    if health.every < SHORTEST_EVERY_MS:
        raise SpecError("node.health.every: too often", hint="at least 1s")
    if 0 < section.telemetry.every < SHORTEST_EVERY_MS:
        raise SpecError("node.telemetry.every: too often", hint="at least 1s, or 0")
    check_range("node.telemetry.every", section.telemetry.every, 0, LONGEST_SAMPLES_MS)
    check_range("node.telemetry.attempts", section.telemetry.attempts, 0, MAX_SAMPLED_ATTEMPTS)
    check_range("node.outputs_days", section.outputs_days, 0, MAX_OUTPUT_DAYS, least_means="by the controller alone")
    if section.outputs_bytes < 0:
        raise SpecError("node.outputs_size: a negative amount")
    if section.files_cache_bytes < LEAST_FILES_CACHE:
        raise SpecError(f"node.files_cache: {section.files_cache} is too small", hint="at least 16MiB")
    check_range("node.min_uid", section.min_uid, 1, MAX_UID)
    _check_devices(section.devices)
    check_gpus(section.gpus)
    if section.bind not in (BIND_AUTO, BIND_CPUS, BIND_NONE):
        raise SpecError(
            f"node.bind: '{shown(section.bind)}' is no way to bind steps",
            hint=f'"{BIND_AUTO}", "{BIND_CPUS}" or "{BIND_NONE}"',
        )
    if len(section.checks) > MAX_CHECKS:
        raise SpecError(f"node.checks: {len(section.checks)} checks; at most {MAX_CHECKS} are allowed")
    for name, check in section.checks.items():
        _check_check(name, check)
    for name, command, timeout in (
        ("prolog", section.prolog, section.prolog_timeout),
        ("epilog", section.epilog, section.epilog_timeout),
    ):
        _check_script(f"node.{name}", command, timeout)
    return section


def _check_devices(words: tuple[str, ...]) -> None:
    """Raises:
    SpecError: a word that means nothing, or that contradicts another.
    """
    field = "node.devices"
    if len(words) > MAX_DEVICES:
        raise SpecError(f"{field}: {len(words)} words; at most {MAX_DEVICES} are allowed")
    if words != (ALL_DEVICES,) and STANDARD_DEVICES not in words:
        hint = f'["{ALL_DEVICES}"], or ["{STANDARD_DEVICES}"] with patterns of further device files'
        raise SpecError(f"{field}: neither '{ALL_DEVICES}' alone nor '{STANDARD_DEVICES}'", hint=hint)
    for word in words:
        if word not in (ALL_DEVICES, STANDARD_DEVICES) and (not word.startswith("/dev/") or "\0" in word):
            raise SpecError(f"{field}: '{word}' is no pattern of device files", hint="begin it with /dev/")
    if ALL_DEVICES in words and len(words) > 1:
        raise SpecError(f"{field}: '{ALL_DEVICES}' with other words", hint=f"leave out '{ALL_DEVICES}'")


def _check_script(field: str, command: tuple[str, ...], timeout: Duration) -> None:
    if command and not command[0].startswith("/"):
        raise SpecError(f"{field}: the first word must be the absolute path of a program", hint=f"not '{command[0]}'")
    if len(command) > MAX_SCRIPT_WORDS or any("\0" in word for word in command):
        raise SpecError(f"{field}: no command line", hint=f"at most {MAX_SCRIPT_WORDS} words")
    check_range(f"{field}_timeout", timeout, 1, LONGEST_SCRIPT_MS)


def _check_check(name: str, check: CheckSection) -> None:
    field = f"node.checks.{name}"
    if not _CHECK.match(name) or name in BUILT_IN:
        raise SpecError(
            f"{field}: no name for a check", hint=f"small letters, digits, '.', '_', '-'; not {', '.join(BUILT_IN)}"
        )
    if not check.command or not check.command[0].startswith("/"):
        raise SpecError(f"{field}.command: the first word must be the absolute path of a program")
    if check.every < SHORTEST_EVERY_MS:
        raise SpecError(f"{field}.every: too often", hint="at least 1s")
    check_range(f"{field}.timeout", check.timeout, 1, LONGEST_CHECK_MS)
    check_range(f"{field}.failures", check.failures, 1, MAX_FAILURES)


def check_labels(labels: dict[str, str], field: str, *, automatic: bool = False) -> dict[str, str]:
    """Check labels that a person gives a node.

    Args:
        automatic: HAL's own may be among them.
    Raises:
        SpecError: too many, too long, or one that HAL sets itself.
    """
    if len(labels) > MAX_LABELS:
        raise SpecError(f"{field}: {len(labels)} labels; at most {MAX_LABELS} are allowed")
    for key, value in labels.items():
        if not 0 < len(key) <= 63 or len(value) > MAX_LABEL or not (key + value).isprintable():
            raise SpecError(f"{field}: '{key[:63]}' is empty, too long or not printable")
        if key.startswith(AUTOMATIC) and not automatic:
            raise SpecError(f"{field}: '{key}': labels that begin with '{AUTOMATIC}' are HAL's own")
    return labels


NODE: Final = Section(
    name="node",
    kind=NodeSection,
    reader="agent",
    about="The nodes of this machine ([docs/nodes.md](../docs/nodes.md)).",
    check=check_node_section,
)
