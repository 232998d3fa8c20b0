"""What Alembic runs: the migrations, on the connection that `scribe_pipeline.database.upgrade` hands over."""

from alembic import context

from scribe_pipeline.database.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
