"""The only access to the outside: clock, timers, transport, disk paths, processes and random numbers, real and
virtual."""
