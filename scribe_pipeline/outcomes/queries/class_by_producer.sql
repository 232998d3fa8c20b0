-- Class x producer (top producers among failures)
SELECT outcome_class, coalesce(outcome_facts->>'producer', '(unknown)') AS producer, count(*)
FROM flyer_tagging_jobs
WHERE outcome_class IN ('pipeline_error','fidelity','compliance_only','not_taggable')
GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 30;
