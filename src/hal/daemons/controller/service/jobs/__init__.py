"""Submitting, controlling and reading jobs."""
