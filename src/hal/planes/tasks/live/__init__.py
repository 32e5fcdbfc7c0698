"""One live job as a value: its task ranges, its active attempts, how its dependencies stand."""
