-- Create 20 test jobs
INSERT INTO scrape_jobs (intake_id, source_id, query_params, status)
SELECT 
  (SELECT id FROM coin_intakes LIMIT 1),
  (SELECT id FROM sources WHERE enabled = true LIMIT 1),
  '{}'::jsonb,
  'pending'
FROM generate_series(1, 20);

-- Check that each job was processed exactly once
SELECT 
  status,
  locked_by,
  COUNT(*) as count
FROM scrape_jobs
WHERE status IN ('succeeded', 'failed', 'running')
GROUP BY status, locked_by;

-- Verify no duplicate price_points for same intake/source/dedupe_key
SELECT 
  intake_id,
  source_id,
  dedupe_key,
  COUNT(*) as count
FROM price_points
GROUP BY intake_id, source_id, dedupe_key
HAVING COUNT(*) > 1;
-- Should return 0 rows

-- Manually check for stuck jobs
SELECT 
  id,
  status,
  locked_by,
  heartbeat_at,
  NOW() - heartbeat_at as time_since_heartbeat
FROM scrape_jobs
WHERE status = 'running'
AND heartbeat_at < NOW() - INTERVAL '5 minutes';

-- Recent jobs
SELECT 
  id,
  status,
  locked_by,
  heartbeat_at,
  created_at,
  completed_at,
  error_message
FROM scrape_jobs
ORDER BY created_at DESC
LIMIT 20;

-- Source status
SELECT 
  name,
  enabled,
  failure_streak,
  last_success_at,
  last_failure_at,
  paused_until
FROM sources
ORDER BY name;

-- Jobs with no recent heartbeat
SELECT 
  id,
  status,
  locked_by,
  heartbeat_at,
  NOW() - heartbeat_at as time_since_heartbeat
FROM scrape_jobs
WHERE status = 'running'
AND (heartbeat_at IS NULL OR heartbeat_at < NOW() - INTERVAL '5 minutes');
