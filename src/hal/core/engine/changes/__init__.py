"""What each kind of event changes in the engine's state: one function an event, called by `applying.apply` alone."""
