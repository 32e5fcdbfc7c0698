"""What one node may cost the controller: lines of its log, and frames of the kinds that an honest node sends rarely.

What a node would log beyond its bucket is counted, and the count is one line; frames beyond theirs make its
connection wait, so that it is read slower and nobody else is. How long its reports take is measured in `inbox`.
"""

from __future__ import annotations

from typing import Final

from hal.wire.frames.agent_keeper import Forgotten, Heartbeat, Samples
from hal.wire.frames.controller_agent import Health
from hal.wire.frames.conversation import Frame
from hal.wire.frames.joining import Renew

COSTS: Final[dict[type[Frame], int]] = {Heartbeat: 1, Forgotten: 1, Health: 10, Samples: 10, Renew: 50}
"""What frames that an honest node sends rarely take from its budget."""
FRAMES: Final = 300
"""What a node may spend on them at once."""
FRAMES_PER_S: Final = 50.0
HELLOS: Final = 30
"""Hellos in the name of one node at once."""
HELLOS_PER_S: Final = 1.0
WAIT_MS: Final = 1_000
"""How long a connection over its budget waits before its next frame is looked at."""
FRAMES_A_TURN: Final = 64
"""Frames of one node that are looked at before others have their turn."""
CHARS_A_WEIGHT: Final = 256
"""So many characters of a report weigh as much as one more step; see `inbox`."""
RAISES: Final = 4
RAISES_PER_S: Final = 1 / 600
"""How often the epoch is raised because of what nodes say that they have seen: at once, and in the long run."""
BARRED_FIRST_MS: Final = 1_000
BARRED_LONGEST_MS: Final = 60_000
"""How long a node that has lied is not heard: doubled with each lie."""
FAULTS_IN_A_MINUTE: Final = 10
"""Of HAL's own, in what one node reports, until its connection ends; each one more ends it again, for longer."""
FAULTS_MS: Final = 60_000
FAULTS_OF_LEASE: Final = 4
"""It is not heard for such a part of its lease at most, so that nothing that runs there is lost for it."""
MAX_NODES: Final = 65_536
"""Nodes that are known, those that are down included."""
MAX_RESOURCE_NAMES: Final = 256
"""Different resources that all nodes offer together: each is a column of the engine's tables."""
MAX_KEY: Final = 63
MAX_LABEL: Final = 600
"""Characters of a label's key and value that are kept: the longest is a domain path."""
MAX_NOTES: Final = 64
MAX_NOTE: Final = 500
"""Remarks of a node about itself that are kept, and characters of each."""
