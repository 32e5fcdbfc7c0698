"""The contract of policy plugins, as checks for their authors: `check(policy)`, or `python -m hal.conformance NAME`.

Each check calls the policy with seeded random inputs, including the edge cases (no rows, one row, nodes without a
resource, jobs without a limit), and raises `NonConformance` at the first answer that breaks the contract. Imports no
engine and no compiler. See docs/plugins.md.
"""

from hal.conformance.admit_check import check_admit
from hal.conformance.answers import NonConformance
from hal.conformance.check_table import INTERFACES, check
from hal.conformance.inputs import CASES
from hal.conformance.order_check import check_order
from hal.conformance.placement_checks import check_domain_score, check_filter, check_score
from hal.conformance.preempt_check import check_preempt

__all__ = [
    "CASES",
    "INTERFACES",
    "NonConformance",
    "check",
    "check_admit",
    "check_domain_score",
    "check_filter",
    "check_order",
    "check_preempt",
    "check_score",
]
