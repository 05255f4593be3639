-- Those of the given lanes whose next job a limit does not let start now, as admit tells of them; without a key those in which nothing
-- waits. A look without locks, so that a claim that meets many of them passes by quickly: it may err, so what it lets pass is
-- judged by admit, and what it holds back is looked at again by whoever asks next. Of each lane it is given the first job where
-- walk has met it waiting, else the lane alone.
-- Called by: claim_lanes, walk_lanes.
-- Locks: none.
-- Wakes: nobody.
create or replace function shut_lanes(p_queue text, p_priority integer, p_heads candidate[]) returns jsonb
language plpgsql stable
set search_path from current set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_owed boolean := exists (select 1 from limit_owed);
begin
    if p_heads = '{}' then
        return '[]';
    end if;
    return (select coalesce(jsonb_agg(jsonb_build_array(s.lane, s.key, s.tenant, s.wait)), '[]') from (
        select distinct on (u.lane) u.lane, m.key, c.tenant, m.wait
        from unnest(p_heads) u
        left join lateral (
            select u.id, u.keys, u.tenant where u.id is not null
            union all
            (select l.id, l.keys, l.tenant from live l
             where u.id is null and l.queue = p_queue and l.priority = p_priority and l.lane = u.lane and l.token is null
             order by l.queue, l.priority, l.lane, l.run_at, l.id limit 1)) c on true
        left join lateral (
            select k.key, f.wait from unnest(c.keys) as k(key)
            cross join lateral (
                select s.wait from limit_state s
                where s.key = k.key and s.room <= 0
                  and not (v_owed and exists (select 1 from limit_owed o where o.key = k.key)) offset 0) f offset 0) m on true
        where m.key is not null or c.id is null
        order by u.lane, m.wait desc nulls first) s);
end $$;
