"""Whose work is preempted for whom, and what becomes of the nodes until it is gone."""
