"""Which domains a node is in (rack, zone, switch, ...), and the files that say so.

Pure. `tree` has the values, `files` reads any of the files. See docs/topology.md.
"""
