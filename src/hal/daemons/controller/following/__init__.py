"""What a controller does while another leads, and what controllers of one database know of each other."""
