"""Alerts: what is wrong with a HAL now, since when, and who is told."""
