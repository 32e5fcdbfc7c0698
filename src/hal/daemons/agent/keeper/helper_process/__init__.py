"""What runs in a helper's process, and only there: standard library and `hal.runtime.regular_files`, nothing else of
HAL."""
