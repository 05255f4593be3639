-- Counts the jobs that the lanes' turns have found, p_ids in their order, into their limits: places, tokens of rates, the probe of a breaker that is half open. Returns
-- for each job the limits of the queue and of its tenant among them, which it does not carry, as text; nothing where there are none.
-- Called by: claim_ring, claim_plain, which have seen that there is room and hold the ring's lock.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function start_under_limits(p_lanes lane_turn[], p_ids uuid[], p_direct boolean, p_terms claim_terms) returns text[]
language plpgsql
as $$
declare
    v_held text[];
begin
    with used as materialized (
        select k.key, sum(u.got)::integer as jobs, min(u.first) as first
        from (select u.got, u.keys, sum(u.got) over (order by u.n) - u.got + 1 as first from unnest(p_lanes) u) u
        cross join unnest(u.keys) as k(key) where u.got > 0 group by k.key),
    counted as (
        update limits m set running = m.running + u.jobs,
            template = case when m.version = p_terms.version then m.template else rule_of(m.key) end, version = p_terms.version,
            tokens = s.free_tokens - u.jobs,
            tokens_at = case when s.free_tokens is not null then greatest(m.tokens_at, clock()) end,  -- never back: no time is earned twice
            probe = case when s.open_until is not null then p_ids[u.first] else m.probe end
        from used u left join lateral (select s.free_tokens, s.open_until from limit_state s where p_direct and s.key = u.key offset 0) s on true
        where m.key = u.key)
    select array_agg(h.held order by u.n) into v_held from unnest(p_lanes) u cross join lateral (
        select nullif(array(select k from unnest(u.keys) k where k <> all (coalesce(u.own, '{}'))), '{}')::text as held) h
    cross join generate_series(1, u.got);
    return case when array_remove(v_held, null) <> '{}' then v_held else '{}' end;
end $$;
