-- What each worker did in the last 5 minutes: jobs of its ticks and windows together, durations and levels of its
-- ticks. (The condition on the start is for the index.)
create or replace view worker_health_summary as
select worker_id, count(*) filter (where kind = 'tick') as tick_count, count(*) filter (where kind = 'window') as window_count,
       round(avg(tick_duration_ms) filter (where kind = 'tick'))::bigint as avg_tick_duration_ms,
       sum(jobs_claimed) as total_jobs_claimed, sum(jobs_processed) as total_jobs_processed,
       sum(jobs_succeeded) as total_jobs_succeeded, sum(jobs_failed) as total_jobs_failed,
       sum(jobs_throttled) as total_jobs_throttled, sum(lock_contention_count) as total_lock_contentions,
       max(tick_ended_at) filter (where kind = 'tick') as last_tick_at,
       max(tick_ended_at) filter (where kind = 'window') as last_window_at,
       level_of('tick_duration', max(tick_duration_ms) filter (where kind = 'tick') / 1000.0) as tick_duration_level,
       level_of('lock_contentions', max(lock_contention_count) filter (where kind = 'tick')) as lock_contentions_level,
       level_of('jobs_per_tick', max(jobs_claimed) filter (where kind = 'tick')) as jobs_per_tick_level
from worker_tick_metrics
where tick_ended_at > clock() - interval '5 minutes' and tick_started_at > clock() - interval '1 day'
group by worker_id;
