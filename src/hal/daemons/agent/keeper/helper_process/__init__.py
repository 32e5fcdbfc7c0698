"""What runs in a helper's process: standard library and `hal.runtime.regular_files`, nothing else of HAL.

The keeper uses `captures` and `step_files`, too, for helpers whose user may not open the files of outputs.
"""
