"""What HAL asks of a policy plugin, as checks for its author: `check(policy)`, or `python -m hal.conformance NAME`.

Each check calls the policy with seeded random inputs, the awkward ones among them (no rows, one row, nodes without a
resource, jobs without a limit), and raises `NonConformance` at the first answer that breaks the contract. Imports no
engine and no compiler. See docs/plugins.md.
"""

from hal.conformance.admitting import check_admit
from hal.conformance.answers import NonConformance
from hal.conformance.choosing import INTERFACES, check
from hal.conformance.inputs import CASES
from hal.conformance.ordering import check_order
from hal.conformance.placing import check_filter, check_score
from hal.conformance.taking import check_preempt

__all__ = [
    "CASES",
    "INTERFACES",
    "NonConformance",
    "check",
    "check_admit",
    "check_filter",
    "check_order",
    "check_preempt",
    "check_score",
]
