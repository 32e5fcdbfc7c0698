"""The HTTP server: sockets, connections and their bounds, and the guard before every request."""
