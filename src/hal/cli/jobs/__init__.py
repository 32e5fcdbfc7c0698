"""Commands on jobs: submit them, look at them, act on them, read their output."""
