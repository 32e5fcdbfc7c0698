"""Passes over what waits: EASY and conservative backfill, and the parts that they share."""
