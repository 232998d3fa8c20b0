"""Jobs of both families whose outcomes were recorded long ago, in any number, for those who ask what history costs."""

from sqlalchemy import text

from scribe_pipeline.outcomes import Family
from tests.endings import FLYERS
from tests.houses import House

# One in a hundred has been in a digest, four in a hundred had a mail of their own; each file has had two hundred jobs.
RECORDED = """
    INSERT INTO {table} ({columns}, status, created_at, updated_at, outcome_class, outcome_recorded_at, outcome_facts,
                         failure_notified_at)
    SELECT {values}, :ended, past.ended_at, past.ended_at, 'pipeline_error', past.ended_at + interval '3 minutes',
           jsonb_build_object(
               'failures', jsonb_build_array('pixel diff on page ' || n % 9), 'notice', past.notice, 'pages', n % 40,
               'notice_attempts', CASE past.notice WHEN 'sent' THEN 1 ELSE 0 END,
               'notice_claimed_at', CASE past.notice WHEN 'sent'
                   THEN to_char(past.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END),
           CASE past.notice WHEN 'none' THEN NULL ELSE date_trunc('day', past.ended_at) END
    FROM generate_series(1, :count) AS n,
         LATERAL (SELECT clock_timestamp() - interval '3 days' - n * interval '1 second' AS ended_at,
                         CASE WHEN n % 100 = 0 THEN 'digest' WHEN n % 25 = 0 THEN 'sent' ELSE 'none' END AS notice) AS past
"""


def add_history(house: House, family: Family, count: int) -> None:
    """Insert so many jobs with their outcomes, and let the planner know of them."""
    if family is FLYERS:
        columns, values, ended = "file_id", "md5((n % greatest(:count / 200, 1))::text)::uuid", "failed"
    else:
        columns = """id, workspace_id, item_image_id, context_id, context_snapshot, input_revision, max_attempts, finished_at"""
        values = """gen_random_uuid(), md5('workspace')::uuid, md5((n % greatest(:count / 200, 1))::text)::uuid,
                    md5('context')::uuid, '{}', 1, 3, past.ended_at"""
        ended = "superseded"
    house.execute(RECORDED.format(table=family.name, columns=columns, values=values), ended=ended, count=count)
    with house.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"VACUUM ANALYZE {family.name}"))
