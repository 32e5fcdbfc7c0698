"""The policy: reading it, changing it, and what it means for accounts and jobs."""
