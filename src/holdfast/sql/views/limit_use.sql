-- Every key that has a limit, was paused or was ever claimed under: the values in force, their use, and what blocks the
-- key. tokens: starts that the rate allows now; next_token: seconds until it allows one. breaker: closed, open or
-- half-open; null without one. throttled: how often claims skipped jobs because of it.
create or replace view limit_use as
select m.key, m.kind, m.template, m.concurrency, (m.running - coalesce(r.jobs, 0))::integer as running,
       m.rate, m.per, m.burst, m.free_tokens as tokens, greatest(1 - m.free_tokens, 0) * m.per / m.rate as next_token,
       m.paused, m.paused_at, m.paused_until, m.paused_by, m.paused_reason,
       case when m.breaker_after is null then null when b.open_until > clock() then 'open' when b.open_until is not null then 'half-open'
            else 'closed' end as breaker,
       b.open_until, b.probe, b.failure_streak, m.last_success_at, m.last_failure_at,
       m.breaker_after, m.breaker_pause, m.breaker_cap,
       (select coalesce(sum(t.count), 0) from throttled t where t.key = m.key)::bigint as throttled, m.weight,
       coalesce(m.override, '{}') - '{by,at}'::text[] as override, m.override ->> 'by' as changed_by,
       (m.override ->> 'at')::timestamptz as changed_at
from limit_state m
left join (select r.key, sum(r.jobs) as jobs, bool_or(r.probe = 2) as resets from releases p cross join unnest(p.ended) r group by r.key) r on r.key = m.key
cross join lateral (  -- a breaker that was reset counts as closed before the next claim
    select case when r.resets is not true then m.open_until end as open_until, case when r.resets is not true then m.probe end as probe,
           case when r.resets then 0 else m.failure_streak end as failure_streak) b
union all  -- set, but not used by a claim yet
select s.key, s.kind, r.template, e.concurrency, 0, e.rate, e.per, e.burst, e.burst, 0,
       s.paused and (s.paused_until is null or s.paused_until > clock()), s.paused_at, s.paused_until, s.paused_by, s.paused_reason,
       case when e.breaker_after is not null then 'closed' end, null, null, 0, null, null, e.breaker_after, e.breaker_pause, e.breaker_cap, 0, s.weight,
       s.override - '{by,at}'::text[], s.override ->> 'by', (s.override ->> 'at')::timestamptz
from limit_settings s left join limit_rules r on r.template = rule_of(s.key)
cross join lateral (select
    case when s.kind = 'order' then 1 else coalesce(s.concurrency, r.concurrency) end as concurrency, coalesce(s.rate, r.rate) as rate, coalesce(s.per, r.per) as per,
    coalesce(s.burst, r.burst) as burst, coalesce(s.breaker_after, r.breaker_after) as breaker_after,
    coalesce(s.breaker_pause, r.breaker_pause) as breaker_pause, coalesce(s.breaker_cap, r.breaker_cap) as breaker_cap) e
where not exists (select 1 from limits m where m.key = s.key);
