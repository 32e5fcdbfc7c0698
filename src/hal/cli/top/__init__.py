"""`hal top`: what the cluster does, live, on a terminal."""
