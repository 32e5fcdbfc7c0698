"""Directories that are shipped with jobs, and what is fetched of what was collected: the client's side on the disk."""
