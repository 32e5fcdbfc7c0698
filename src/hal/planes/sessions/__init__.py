"""Sessions: blocks of tasks that clients submit, handed to the workers in a session's slots.

`broker` decides; `serving` connects it to clients and workers.
"""
