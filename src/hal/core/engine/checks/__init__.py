"""What tests and simulations ask of a whole state: whether it contradicts itself, and whether two are equal."""
