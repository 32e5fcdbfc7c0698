"""The daemons: the only places that name concrete classes and assemble them."""
