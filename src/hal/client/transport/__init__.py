"""How requests are sent and answers read: retries, the two transports, their bounds."""
