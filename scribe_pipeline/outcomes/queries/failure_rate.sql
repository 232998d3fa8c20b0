-- Failure rate by a characteristic (swap the dimension expression)
SELECT coalesce(outcome_facts->>'scanned', '?')          AS scanned,
       count(*)                                          AS jobs,
       count(*) FILTER (WHERE outcome_class = 'success') AS ok,
       round(100.0 * count(*) FILTER (WHERE outcome_class NOT IN ('success','cancelled')) / count(*), 1) AS fail_pct
FROM flyer_tagging_jobs
WHERE outcome_class IS NOT NULL
GROUP BY 1 ORDER BY jobs DESC;
-- other dimensions:
--   outcome_facts->>'producer'
--   outcome_facts->>'tree_state'
--   CASE WHEN (outcome_facts->>'pages')::int <= 1 THEN '1'
--        WHEN (outcome_facts->>'pages')::int <= 4 THEN '2-4'
--        WHEN (outcome_facts->>'pages')::int <= 10 THEN '5-10'
--        WHEN (outcome_facts->>'pages')::int <= 32 THEN '11-32'
--        ELSE '33+' END
--   CASE WHEN (outcome_facts->>'bytes')::bigint < 250000 THEN '<250KB'
--        WHEN (outcome_facts->>'bytes')::bigint < 1000000 THEN '250KB-1MB'
--        WHEN (outcome_facts->>'bytes')::bigint < 5000000 THEN '1-5MB'
--        WHEN outcome_facts->>'bytes' IS NULL THEN '?' ELSE '5MB+' END
