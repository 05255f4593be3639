-- What each worker did in the last 5 minutes. (The bound on the start is for the index.)
create view worker_health_summary as
select worker_id, count(*) as tick_count, round(avg(tick_duration_ms))::bigint as avg_tick_duration_ms,
       sum(jobs_claimed) as total_jobs_claimed, sum(jobs_processed) as total_jobs_processed,
       sum(jobs_succeeded) as total_jobs_succeeded, sum(jobs_failed) as total_jobs_failed,
       sum(jobs_throttled) as total_jobs_throttled, sum(lock_contention_count) as total_lock_contentions,
       max(tick_ended_at) as last_tick_at,
       level_of('tick_duration', max(tick_duration_ms) / 1000.0) as tick_duration_level,
       level_of('lock_contentions', max(lock_contention_count)) as lock_contentions_level,
       level_of('jobs_per_tick', max(jobs_claimed) filter (where kind = 'tick')) as jobs_per_tick_level
from worker_tick_metrics
where tick_ended_at > clock() - interval '5 minutes' and tick_started_at > clock() - interval '1 day'
group by worker_id;
