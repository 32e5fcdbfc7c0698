"""What the plane asks of the engine, and the values by which it describes work to it."""
