"""The Python client: `connect()`, `Client`, `Job`, their asyncio twins, and the values they return.

Most people write `import hal` and use the names from there; nothing is imported here before it is used.
"""
