"""Traces of jobs: where the time of an attempt went, as spans built from rows."""
