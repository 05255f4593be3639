-- Those of the given lanes whose next job a limit does not let start now, as admit tells of them. A look without locks, so that
-- a claim that meets many of them passes by quickly: it may err, so what it lets pass is judged by admit, and what it
-- holds back is looked at again by whoever asks next.
-- Called by: claim_lanes.
-- Locks: none.
-- Wakes: nobody.
create or replace function shut_lanes(p_queue text, p_priority integer, p_lanes bigint[]) returns jsonb
language plpgsql stable
set search_path from current set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
    return (select coalesce(jsonb_agg(jsonb_build_array(s.lane, s.key, s.tenant, s.wait)), '[]') from (
        select distinct on (u.lane) u.lane, k.key, c.tenant, m.wait
        from unnest(p_lanes) as u(lane)
        cross join lateral (
            select l.keys, l.tenant from live l
            where l.queue = p_queue and l.priority = p_priority and l.lane = u.lane and l.token is null
            order by l.queue, l.priority, l.lane, l.run_at, l.id limit 1 offset 0) c
        cross join lateral unnest(c.keys) as k(key)
        cross join lateral (
            select s.wait from limit_state s
            where s.key = k.key and s.room <= 0 and not exists (select 1 from limit_owed o where o.key = k.key) offset 0) m
        where u.lane & 4294967295 <> 0
        order by u.lane, m.wait desc nulls first) s);
end $$;
