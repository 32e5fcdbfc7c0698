"""Commands that need no running HAL: replay workload logs, generate them."""
