"""HAL: a scheduler for batch, high-throughput and AI work on any compute a team has."""
