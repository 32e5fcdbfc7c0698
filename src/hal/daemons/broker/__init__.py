"""The broker of a session as a process."""
