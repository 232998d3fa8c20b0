-- Notices not delivered (pending/sending should drain; failed = gave up)
SELECT outcome_facts->>'notice' AS notice, count(*)
FROM flyer_tagging_jobs
WHERE outcome_facts->>'notice' IN ('pending','sending','failed','unconfigured','digest')
  AND failure_notified_at IS NULL
GROUP BY 1;
