"""A worker: the process in a slot of a session. It runs the tasks that the session's broker sends it, one by one."""
