"""Commands on nodes, and the tokens with which machines join."""
