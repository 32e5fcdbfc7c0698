"""Commands to see what HAL does and did."""
