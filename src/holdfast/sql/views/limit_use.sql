-- Every key that has a limit, was paused or was ever claimed under: what is in force, how much of it is in use, and what
-- holds it back. tokens: starts that the rate allows now; next_token: seconds until it allows one. breaker: closed, open
-- or half-open; null where there is none. throttled: how often claims stepped over work because of it.
create view limit_use as
select m.key, m.kind, m.template, m.concurrency,
       (m.running - (select coalesce(sum(cardinality(o.ids)), 0) from limit_owed o where o.key = m.key))::integer as running,
       m.rate, m.per, m.burst, m.free_tokens as tokens, greatest(1 - m.free_tokens, 0) * m.per / m.rate as next_token,
       m.paused and (m.paused_until is null or m.paused_until > clock()) as paused,
       m.paused_at, m.paused_until, m.paused_by, m.paused_reason,
       case when m.open_until > clock() then 'open' when m.open_until is not null then 'half-open'
            when m.breaker_after is not null then 'closed' end as breaker,
       m.open_until, m.probe, m.failure_streak, m.last_success_at, m.last_failure_at,
       m.breaker_after, m.breaker_pause, m.breaker_cap,
       (select coalesce(sum(s.count), 0) from throttled s where s.key = m.key)::bigint as throttled, m.weight,
       m.override - '{by,at}'::text[] as override, m.override ->> 'by' as changed_by,
       (m.override ->> 'at')::timestamptz as changed_at
from limit_state m;
