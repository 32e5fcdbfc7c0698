"""HTTP for any daemon: sockets with bounds, callers, rights, rows of endpoints, problems, limits, the audit log.

Knows no plane and no daemon. A daemon declares rows (`endpoint`) with their rights (`rights`), says who its callers are
(`callers`), and serves them (`server.http_server`); its OpenAPI document follows from the rows (`openapi`).
"""
