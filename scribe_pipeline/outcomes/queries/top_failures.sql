-- Top failure strings, digits normalised
SELECT regexp_replace(f, '\d+(\.\d+)?', 'N', 'g') AS failure, count(DISTINCT id) AS jobs
FROM flyer_tagging_jobs, jsonb_array_elements_text(outcome_facts->'failures') AS f
WHERE outcome_class IN ('fidelity','compliance_only')
GROUP BY 1 ORDER BY 2 DESC;
