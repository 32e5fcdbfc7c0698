"""The control loop and what it drives: inbox, engine, commit, flush."""
