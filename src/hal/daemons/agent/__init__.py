"""The agent: one per node; it connects the controller with the keeper, which holds the running processes."""
