"""The bounds of numbers, texts and lists in frames. They are part of the types, so that decoding checks them.

A frame that exceeds a bound is malformed, whoever sent it. What depends on more than the frame itself (to whom a step
belongs, which epoch is known) is checked by the receiver.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from hal.core.model.cpu_lists import MAX_CPUS

MAX_AMOUNT: Final = (1 << 60) - 1
"""Of a resource in base units, and of a duration in milliseconds in commands; the engine's own limit."""
MAX_COUNT: Final = 1 << 53
"""Of counts in reports, including instants in milliseconds: exact in every language's numbers."""
MAX_ITEMS: Final = 2_000
"""Steps in one frame; HAL itself sends at most 1,000 in one."""
MAX_READS: Final = 64
"""Outputs that one frame asks for."""
MAX_HELD: Final = 65_536
"""Steps of a node in a hello."""
MAX_TEXT: Final = 1 << 16
"""Characters of a text for people."""
MAX_NAME: Final = 256
"""Characters of a name or a code."""
MAX_PEM: Final = 1 << 14
"""Characters of a certificate, or of a signing request."""
MAX_FEATURES: Final = 64
MAX_NOTES: Final = 256
"""Remarks of a node about itself."""
MAX_NOTE: Final = 2_000
"""Characters of such a remark."""
MAX_RESOURCES: Final = 64
"""Resources that a node offers."""
MAX_LABELS: Final = 256
MAX_CHECKS: Final = 256
"""Failing checks of a node."""
MAX_STEP_CGROUPS: Final = 16
"""Cgroups of one step: one for each controller, at most."""
MAX_STEP_PORTS: Final = 16
"""Ports of a service."""
MAX_STEP_DEVICES: Final = 64
"""GPUs of one step: as many as a node reports."""
MAX_DEVICE_FILES: Final = 8
"""Of one GPU."""
MAX_WORDS: Final = 4_096
"""Arguments of a command that runs inside a step; together bounded by the request that names them."""
MAX_SIGNAL: Final = 64
MAX_EPOCH_AHEAD: Final = 100_000
"""How far above the highest known epoch another one is accepted, because leadership may have changed unnoticed that
often. A controller exceeds epochs that a node has seen up to this bound, so a node that received false ones is not
lost for good."""
MAX_FIRST_EPOCH: Final = 1 << 40
"""The same for an end that knows no epoch yet."""
LONGEST_LEASE_MS: Final = 86_400_000
"""As in hal.toml (`[leases]`)."""
MAX_LOAD: Final = 1e9

Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
"""Of a resource, or milliseconds in a command."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""Something counted, or an instant in milliseconds."""
LeaseMs = Annotated[int, Meta(ge=0, le=LONGEST_LEASE_MS)]
"""Duration of a lease, a heartbeat or a credit."""
Offset = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
"""In an output; negative: from its end."""
Mark = Annotated[int, Meta(ge=0, le=1 << 62)]
"""Of a step's processes: a limit that is theirs alone."""
Pid = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Cpu = Annotated[int, Meta(ge=0, le=MAX_CPUS - 1)]
"""The kernel's number of a CPU."""
ExitCode = Annotated[int, Meta(ge=0, le=255)]
SignalNumber = Annotated[int, Meta(ge=0, le=MAX_SIGNAL)]
Umask = Annotated[int, Meta(ge=0, le=0o777)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
"""Of TCP; 0: none."""
Version = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Load = Annotated[float, Meta(ge=0.0, le=MAX_LOAD)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Note = Annotated[str, Meta(max_length=MAX_NOTE)]
Pem = Annotated[str, Meta(max_length=MAX_PEM)]
