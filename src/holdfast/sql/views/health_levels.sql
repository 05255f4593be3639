-- The worst value of each metric now or in the last 5 minutes, and its level: good, warning (from the threshold on) or
-- critical (above it); null without a value or a threshold. What hurts users has thresholds by default: how long the
-- oldest job of a queue that is not paused waits, as a multiple of its target; the share of attempts that fail, of at
-- least 20; lost leases; how many seconds the upkeep is late. The other metrics are of ticks (the length of a window is
-- a setting) and of each worker's latest depth.
create or replace view health_levels as
with recent as (
    select * from worker_tick_metrics
    where tick_ended_at > clock() - interval '5 minutes' and tick_started_at > clock() - interval '1 day'),
latest as (select s.figures from snapshots s order by s.at desc limit 1),
waits as (
    select q.queue, q.oldest_wait / coalesce(
        (select (s.value ->> q.queue)::double precision from settings s where s.name = 'wait_targets'),
        (select s.value::double precision from settings s where s.name = 'wait_target')) as value
    from latest l cross join jsonb_to_recordset(l.figures -> 'queues') as q(queue text, oldest_wait double precision)
    where not exists (
        select 1 from limit_settings p
        where p.key = 'queue:' || q.queue and p.paused and (p.paused_until is null or p.paused_until > clock()))),
attempts as (
    select sum(a.ended) as ended, sum(a.failed) as failed, sum(a.lost) as lost from (
        select m.ended, m.failed, m.lost from minutes m
        where m.minute > clock() - interval '5 minutes' and m.minute < date_trunc('minute', clock() - interval '1 minute')
        union all select c.ended, c.failed, c.lost from attempt_counts c
        where c.minute >= date_trunc('minute', clock() - interval '1 minute')) a),
figures (metric, value) as (
    select 'wait_over_target', max(w.value) from waits w
    union all select 'failing_share', case when a.ended >= 20 then a.failed / a.ended end from attempts a
    union all select 'leases_lost', a.lost from attempts a
    union all select 'upkeep_late', (
        select greatest(extract(epoch from clock() - l.expires_at), 0) from leader l
        where l.chore = 'upkeep' and exists (select 1 from workers))
    union all select 'tick_duration', max(tick_duration_ms) filter (where kind = 'tick') / 1000.0 from recent
    union all select 'lock_contentions', max(lock_contention_count) filter (where kind = 'tick') from recent
    union all select 'jobs_per_tick', max(jobs_claimed) filter (where kind = 'tick') from recent
    union all select 'queue_depth', max(depth) from (
        select distinct on (worker_id) queue_depth_at_end as depth from recent order by worker_id, tick_ended_at desc) last)
select metric, f.value::double precision as value, level_of(metric, f.value::double precision) as level,
       (t.value -> metric ->> 'warning')::double precision as warning, (t.value -> metric ->> 'critical')::double precision as critical
from figures f left join settings t on t.name = 'thresholds';
