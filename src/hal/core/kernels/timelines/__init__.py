"""What each node will have free, and when, kept from cycle to cycle for conservative backfill."""
