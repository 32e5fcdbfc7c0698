"""Events on what waits and what runs: submitted, edited, started, ended, adopted."""
