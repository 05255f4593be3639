-- Works out what is in force for the given keys, making rows for those that have none: what code says for the rule that
-- fits the key, what operators said of the rule, what they said of the key; the last one that says something wins. Of an
-- order ("order:...") there is always one job at a time.
-- Called by: claim, when it meets a key for the first time; register_limits and set_limit, when something has changed.
-- Locks: limits rows in key order.
-- Wakes: nobody; whoever changes a limit tells the workers.
create or replace function apply_limits(p_keys text[]) returns void
language plpgsql
set search_path from current set jit = off
as $$
begin
    insert into limits as m (key, kind, override, template, concurrency, rate, per, burst, breaker_after, breaker_pause,
                             breaker_cap, weight, lane, tokens, tokens_at)
    select i.key, case when i.key ~ '^(queue|task|tenant):' then split_part(i.key, ':', 1) else 'key' end, i.own, i.template,
           case when i.key like 'order:%' then 1 else i.concurrency end, i.rate, i.per, i.burst, i.breaker_after, i.breaker_pause, i.breaker_cap,
           i.weight, case when i.key like 'tenant:%' then lane_of(substr(i.key, 8), null) end, coalesce(i.burst, 0), clock()
    from (select k.key, k.own, r.template, f.*
          from (select u.key, coalesce((select m.override from limits m where m.key = u.key), '{}') as own
                from (select distinct unnest(p_keys) as key) u) k
          left join lateral (
              select * from limit_rules r where k.key like r.pattern
              order by length(r.pattern) desc, r.template limit 1) r on true
          cross join lateral jsonb_to_record(
              coalesce(r.code, '{}') || coalesce(r.override, '{}') || k.own)
              as f(concurrency integer, rate double precision, per double precision, burst double precision,
                   breaker_after integer, breaker_pause double precision, breaker_cap double precision,
                   weight double precision)) i
    order by i.key
    on conflict (key) do update set
        kind = excluded.kind, template = excluded.template, concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per,
        burst = excluded.burst, breaker_after = excluded.breaker_after, breaker_pause = excluded.breaker_pause,
        breaker_cap = excluded.breaker_cap, weight = excluded.weight, lane = excluded.lane,
        -- What has been earned at the old rate stays; a rate that is new begins with a full burst.
        tokens = case when m.rate is null then coalesce(excluded.burst, 0)
                      -- of the row itself: a query would see it as it was before a claim that this one waited for
                      else least(m.tokens + greatest(extract(epoch from clock() - m.tokens_at), 0) * m.rate / m.per,
                                 m.burst, coalesce(excluded.burst, 0)) end,
        tokens_at = greatest(m.tokens_at, clock()),
        open_until = case when excluded.breaker_after is not null then m.open_until end,
        opens = case when excluded.breaker_after is not null then m.opens else 0 end
    -- Whoever has set something else since this call looked works it out in the same transaction.
    where m.override = excluded.override;
end $$;
