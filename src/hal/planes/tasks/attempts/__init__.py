"""Attempts: from the starts that the engine decides to the ends that nodes report."""
