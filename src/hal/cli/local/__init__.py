"""Commands on the HAL of this machine: start it, stop it, look at it, back it up, join another one."""
