"""Nodes: their arrivals and silences, and what keeps new work away from them."""
