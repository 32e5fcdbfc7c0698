"""What the collector answers over REST: one module of rows for each part, and the health of all."""
