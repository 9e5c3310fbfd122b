"""What Alembic runs: it works on the connection that `memory.migrate` has opened and locked, in its transaction."""

from __future__ import annotations

from alembic import context

from memory.schema import REVISION_TABLE, Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, version_table=REVISION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
