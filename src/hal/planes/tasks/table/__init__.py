"""The table of live jobs: lookups, the draft of what is not durable yet, rows and engine events that follow."""
