"""Closing, opening, removing and reading nodes."""
