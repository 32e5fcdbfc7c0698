"""`hal web`: the page of a HAL, in a process of its own, over the public interfaces alone."""
