"""The one door to the outside: clock, timers, transport, disk paths, processes and random seed, real and virtual."""
