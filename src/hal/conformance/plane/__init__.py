"""The contract between planes and HAL, as checks that speak REST and gates only.

Each module checks one verb of a plane. Those that speak REST check a running controller: `check(rest)` raises
`NonConformance` at the first guarantee that does not hold, and what it puts it removes again. `gate` checks the service
of a gate, through its socket.
"""
