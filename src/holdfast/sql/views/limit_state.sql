-- Every limit with its current state and the values in force. free_tokens: starts that the rate allows now; room: how
-- many more jobs may start; wait: seconds until a limit without room has some by itself (a token, the end of a pause or
-- of an open breaker), or null if it depends on the end of a job or on an operator. direct: claimed jobs start at once;
-- says: whether it limits anything. Claims read this view under the ring's lock, so it is exact.
create or replace view limit_state as
select m.key, m.kind, r.template, e.*, m.running, m.failure_streak, m.last_success_at, m.last_failure_at, b.open_until, m.opens, m.probe, m.created_at,
       s.override, s.weight, p.paused, s.paused_until, s.paused_at, s.paused_by, s.paused_reason, t.free_tokens,
       case when p.paused then 0 else greatest(0, least(
           e.concurrency - m.running, floor(least(t.free_tokens + 1e-9, 2147483647))::integer,
           case when b.open_until is null then 2147483647
                when b.open_until > clock() or m.probe is not null then 0 else 1 end)) end as room,
       case when p.paused and s.paused_until is null or m.running >= e.concurrency
                 or m.probe is not null and b.open_until <= clock() then null
            else greatest(0, case when p.paused then date_part('epoch', s.paused_until - clock()) end,
                          date_part('epoch', b.open_until - clock()),
                          (1 - t.free_tokens) * e.per / e.rate) end as wait,
       e.rate is not null or e.breaker_after is not null as direct,
       e.concurrency is not null or e.rate is not null or e.breaker_after is not null or p.paused as says
from limits m left join limit_settings s on s.key = m.key
left join limit_rules r on r.template = case
    when m.version = (select coalesce(max(v.version), 0) from limit_rules v) then m.template else rule_of(m.key) end
cross join lateral (select
    case when m.kind = 'order' then 1 else coalesce(s.concurrency, r.concurrency) end as concurrency, coalesce(s.rate, r.rate) as rate,
    coalesce(s.per, r.per) as per, coalesce(s.burst, r.burst) as burst, coalesce(s.breaker_after, r.breaker_after) as breaker_after,
    coalesce(s.breaker_pause, r.breaker_pause) as breaker_pause, coalesce(s.breaker_cap, r.breaker_cap) as breaker_cap) e
cross join lateral (select case when e.breaker_after is not null then m.open_until end as open_until) b  -- a breaker that was removed is not open
cross join lateral (select coalesce(s.paused and (s.paused_until is null or s.paused_until > clock()), false) as paused) p
cross join lateral (select case when e.rate is not null then least(e.burst, coalesce(
    m.tokens + greatest(date_part('epoch', clock() - m.tokens_at), 0) * e.rate / e.per, e.burst)) end as free_tokens) t;
