"""What can be asked of a controller, in process: REST and simulations call it."""
