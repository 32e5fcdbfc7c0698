"""OpenTelemetry's protocol over HTTP: spans and log lines for receivers that people have already."""
