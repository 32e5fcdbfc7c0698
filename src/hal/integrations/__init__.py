"""HAL in other people's tools. Each integration is a package that needs an extra of its own."""
