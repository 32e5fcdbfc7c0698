"""What takes several requests, as flows of steps, and what performs them in threads and in asyncio."""
