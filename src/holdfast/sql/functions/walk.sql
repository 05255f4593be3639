-- The next lanes after p_from, and not after p_to, in which a queue has jobs of a priority: one step of an index each,
-- however many jobs a lane has. Of each lane it answers with its first job, as far as shut_lanes wants to know it; without an id when that one
-- runs. With p_each no more than so many lanes of one tenant.
-- Called by: walk_lanes.
-- Locks: none.
-- Wakes: nobody.
create or replace function walk(p_queue text, p_priority integer, p_from bigint, p_to bigint, p_limit integer, p_each integer default null)
returns candidate[]
language plpgsql
set search_path from current
as $$
begin
    return (
        with recursive ring(lane, n, mine, id, tenant, keys) as (
            (select l.lane, 1, 1, case when l.token is null then l.id end, l.tenant::text, l.keys::text[]
             from live l where l.queue = p_queue and l.priority = p_priority and l.lane > p_from
             order by l.queue, l.priority, l.lane limit 1)
            union all
            select s.lane, r.n + 1, case when s.lane >> 32 = r.lane >> 32 then r.mine + 1 else 1 end, s.id, s.tenant, s.keys
            from ring r cross join lateral (
                select l.lane, case when l.token is null then l.id end as id, l.tenant::text, l.keys::text[]
                from live l where l.queue = p_queue and l.priority = p_priority
                  and l.lane > case when r.mine >= p_each then (r.lane >> 32 << 32) + 4294967295 else r.lane end
                order by l.queue, l.priority, l.lane limit 1) s
            where r.n < p_limit and (p_to is null or r.lane <= p_to))
        select coalesce(array_agg((null, r.id, r.lane, null, r.tenant, null, r.keys, null, null)::candidate order by r.n), '{}')
        from ring r where p_to is null or r.lane <= p_to);
end $$;
