"""Messages of jobs by mail and webhook: what is sent, whether the site allows it, and sending it."""
