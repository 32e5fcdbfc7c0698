"""The history part: every ended attempt with what it asked for and used, and sums of them by minute, hour and day."""
