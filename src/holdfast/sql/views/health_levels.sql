-- The worst value of each metric in the last 5 minutes, and its level: good, warning (from the threshold on) or
-- critical (above it). Duration, jobs and contention are those of ticks: the length of a window is a setting, and its
-- jobs depend on the worker. The depth is each worker's latest, from ticks and windows. Contention is never critical,
-- since a claim skips locked rows.
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
