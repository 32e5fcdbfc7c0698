"""Kernels: arrays in, arrays out, compiled by numba; a plain-Python reference of each lies beside its test.

Importing this package imports no numba; its modules do.
"""
