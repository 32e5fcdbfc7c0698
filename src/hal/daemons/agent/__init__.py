"""The agent: one per node; it speaks to the controller for the keeper, which holds the running processes."""
