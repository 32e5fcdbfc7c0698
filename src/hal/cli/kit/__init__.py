"""How commands are declared, what they read and write with: the screen, tables, files, exit codes."""
