-- The worst of each figure in the last 5 minutes, and whether that is good, a warning or critical. A window is as long as its setting
-- says, and its jobs are what a worker could do, so its length, jobs and contention are not judged: those figures are of ticks. The
-- depth is the last that each worker saw, in either. From warning on it is one, above critical it is that; contention is never
-- critical, since a claim steps over what is locked and waits for nothing.
create view health_levels as
with recent as (
    select * from worker_tick_metrics
    where tick_ended_at > clock() - interval '5 minutes' and tick_started_at > clock() - interval '1 day'),
figures (metric, value) as (
    select 'tick_duration', max(tick_duration_ms) filter (where kind = 'tick') / 1000.0 from recent
    union all select 'lock_contentions', max(lock_contention_count) filter (where kind = 'tick') from recent
    union all select 'jobs_per_tick', max(jobs_claimed) filter (where kind = 'tick') from recent
    union all select 'queue_depth', max(depth) from (
        select distinct on (worker_id) queue_depth_at_end as depth from recent order by worker_id, tick_ended_at desc) last)
select metric, f.value::double precision as value, level_of(metric, f.value::double precision) as level,
       (t.value -> metric ->> 'warning')::double precision as warning, (t.value -> metric ->> 'critical')::double precision as critical
from figures f left join settings t on t.name = 'thresholds';
