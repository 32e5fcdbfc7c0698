"""Samples: what nodes, attempts and other processes used, newest in memory, history in blocks of columns."""
