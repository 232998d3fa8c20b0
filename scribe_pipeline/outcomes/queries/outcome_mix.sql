-- Outcome mix
SELECT outcome_class, count(*),
       round(100.0 * count(*) / sum(count(*)) OVER (), 1) AS pct
FROM flyer_tagging_jobs
WHERE outcome_class IS NOT NULL
GROUP BY 1 ORDER BY 2 DESC;
