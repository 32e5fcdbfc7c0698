"""The keeper: spawns, holds, limits and journals the steps of one node."""
