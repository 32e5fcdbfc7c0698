"""REST: what is asked over HTTP, from the socket to the service that answers it."""
