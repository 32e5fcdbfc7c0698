"""Advice of planes for the policies of the engine: put, read, withdrawn; see `advice`."""
