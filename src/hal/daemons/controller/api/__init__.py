"""REST `/v1`: Litestar routes over the controller's API, problem documents, the server on a Unix socket."""
