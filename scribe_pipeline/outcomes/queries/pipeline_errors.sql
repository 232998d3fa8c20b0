-- Pipeline errors, normalised
SELECT left(regexp_replace(outcome_facts->>'error', '\d+', 'N', 'g'), 140) AS error, count(*)
FROM flyer_tagging_jobs WHERE outcome_class = 'pipeline_error'
GROUP BY 1 ORDER BY 2 DESC;
