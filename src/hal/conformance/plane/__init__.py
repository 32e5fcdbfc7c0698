"""The contract between planes and the controller, as checks that speak REST only: what a plane may rely on.

Each module checks one verb of a plane against a running controller: `check(rest)` raises `NonConformance` at the first
guarantee that does not hold. What it puts it removes again.
"""
