"""Answers about waiting jobs: why one does not start, when it might, and what would help. Nothing here decides."""
