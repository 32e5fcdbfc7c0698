"""The observability plane: what the collector keeps of what a HAL does and did, and decides about it.

Parts are independent: each has a database of its own, and one that fails or is flooded holds up no other.
"""
