"""The collector: the process of the observability plane (`hal up --with observability`).

It follows the controller, takes what agents and planes send, and answers over REST. Nothing of HAL waits for it: while
it is dead, slow or full, jobs and scheduling are as without it.
"""
