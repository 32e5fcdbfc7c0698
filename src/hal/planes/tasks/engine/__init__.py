"""What the plane asks of the engine, and the values by which it tells it of work."""
