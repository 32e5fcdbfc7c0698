"""Alembic's entry: runs the migrations on the connection that `hal.store.migrate` passes, inside its transaction."""

from __future__ import annotations

from alembic import context

from hal.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,
)
context.run_migrations()
