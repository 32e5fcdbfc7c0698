"""Periodic jobs: what people ask of them, and their submission when they are due."""
