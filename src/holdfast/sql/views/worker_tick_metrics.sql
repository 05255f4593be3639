-- What workers did: one row for each bounded pass, and for each window in which a continuous worker did something.
create or replace view worker_tick_metrics as
select id, worker as worker_id, kind, started_at as tick_started_at, ended_at as tick_ended_at,
       round(extract(epoch from ended_at - started_at) * 1000)::bigint as tick_duration_ms,
       claimed as jobs_claimed, processed as jobs_processed, succeeded as jobs_succeeded, failed as jobs_failed,
       throttled as jobs_throttled, contention as lock_contention_count, tenants as tenant_jobs,
       depth_at_start as queue_depth_at_start, depth as queue_depth_at_end
from ticks;
