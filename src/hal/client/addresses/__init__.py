"""Where a HAL is reached: homes, URLs, logins, and whom to trust there."""
