"""The calls of REST /v1, and the values that they return."""
