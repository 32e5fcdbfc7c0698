"""One small Protocol for each part of the engine that a plugin may replace, each with an interface version."""
