"""The command line: one file per command, each parses, calls the client and renders; nothing is imported before use."""
