"""REST of a controller that does not lead: what it answers itself, and what it passes on to the leader."""
