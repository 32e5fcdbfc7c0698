"""API tokens of people and programs, join tokens of machines."""
