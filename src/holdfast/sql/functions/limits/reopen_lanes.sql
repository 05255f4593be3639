-- Open lanes that the keys have closed: in each ring as many as the key has room for, the longest waiting first. A key
-- without room that opens at a known time is scheduled for then. Return whether lanes were opened. The caller holds the
-- ring's lock.
create or replace function reopen_lanes(p_keys text[], p_token bigint) returns boolean
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    v_most integer := 1000;  -- of one key in one call; the rest is due at once
    v_flows jsonb;
begin
    with back as materialized (
        select l.*, s.place as key_place, s.wait, count(l.place) over (partition by s.key, r.queue, r.priority, r.direct) as lanes
        from (select k.key from unnest(p_keys) as k(key) where (select true from lanes l where l.closed_by = k.key limit 1)) k
        cross join lateral (select m.ctid as place, m.key, least(s.room, v_most) as room, s.wait
                            from limit_state s join limits m on m.key = s.key where s.key = k.key offset 0) s
        cross join lateral (  -- from ring to ring, each found by one look into the index
            with recursive closed(queue, priority, direct) as (
                (select l.queue, l.priority, l.direct from lanes l where l.closed_by = s.key
                 order by l.closed_by, l.queue, l.priority, l.direct limit 1)
                union all
                select n.* from closed c cross join lateral (
                    select l.queue, l.priority, l.direct from lanes l
                    where l.closed_by = s.key and (l.queue, l.priority, l.direct) > (c.queue, c.priority, c.direct)
                    order by l.closed_by, l.queue, l.priority, l.direct limit 1) n)
            select * from closed) r
        left join lateral (
            select l.ctid as place, l.queue, l.priority, l.direct, l.flow, l.tenant from lanes l
            where l.closed_by = s.key and l.queue = r.queue and l.priority = r.priority and l.direct = r.direct
            order by l.closed_by, l.queue, l.priority, l.direct, l.closed_at
            limit case when s.room > 0 then s.room + 1 else 0 end) l on true),
    opened as (update lanes l set open = true, closed_by = null, closed_at = null from back b where l.ctid = b.place),
    due as (
        update limits m set opens_at = least(m.opens_at, clock() + make_interval(secs => b.wait))
        from (select b.key_place, min(case when b.lanes > v_most then 0 else b.wait end) as wait from back b
              where b.place is null and b.wait is not null or b.lanes > v_most group by b.key_place) b
        where m.ctid = b.key_place)
    select jsonb_agg(f) into v_flows from (
        select distinct b.queue, b.priority, b.direct, b.flow, b.tenant from back b where b.place is not null) f;
    if v_flows is not null then perform open_flows(v_flows, p_token); end if;
    return v_flows is not null;
end $$;
