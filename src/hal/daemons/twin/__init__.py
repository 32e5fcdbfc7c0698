"""The digital twin: the production engine under virtual time. First use: replaying workload logs.

`swf` reads logs, `replay` drives the engine, `metrics` evaluates the outcome, `plot` draws it, `lublin` and `workload`
generate synthetic logs. Nothing here decides what runs: every start comes from `hal.core.engine`.
"""
