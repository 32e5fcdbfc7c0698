"""Policies of ACME's cluster, for HAL."""
