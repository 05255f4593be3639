-- Writes down what became of lanes in their turns: closed by a key without room, empty, or moved to the other ring; and of some where their first job stands,
-- once in 25 jobs or so, since that costs as much as a walk past so many dead entries. Returns the turns of flows that lanes have left, keys that
-- those lanes did not use, how many were closed, and the flows that lanes moved to.
-- Called by: claim_ring.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function write_lanes(
    p_queue text, p_priority integer, p_direct boolean, p_lanes lane_turn[], p_terms claim_terms,
    out flows integer[], out keys text[], out closed integer, out moved jsonb)
language plpgsql
as $$
begin
    with fate as materialized (
        select u.*, u.direct <> p_direct as moves, u.direct = p_direct and u.shut_by is not null as closes,
               u.got < u.take and (
                   select true from live j  -- those that other transactions hold wait too
                   where j.queue = p_queue and j.priority = p_priority and j.lane = u.lane and j.token is null and j.id <> all (p_terms.found)
                     and (j.run_at, j.id) >= (u.mark_at, u.mark_id) and (j.deadline is null or j.deadline > clock())
                   limit 1) is null as empties
        from unnest(p_lanes) u
        where u.direct <> p_direct or u.shut_by is not null or u.got < u.take or random() * 25 < u.got),
    written as (
        update lanes l set direct = f.direct, open = not (f.closes or f.empties), closed_by = case when f.closes then f.shut_by end,
            closed_at = case when f.closes or f.empties then p_terms.token + f.n end,
            mark_at = coalesce(h.run_at, l.mark_at), mark_id = coalesce(h.id, l.mark_id)
        from fate f left join lateral (
            select j.run_at, j.id from live j
            where j.queue = p_queue and j.priority = p_priority and j.lane = f.lane and j.token is null and j.id <> all (p_terms.found)
              and (j.run_at, j.id) >= (f.mark_at, f.mark_id)
            order by j.queue, j.priority, j.lane, j.run_at, j.id limit 1) h on f.got > 0
        where l.ctid = f.place
        returning l.flow, l.tenant, f.moves),
    timed as (
        update limits m set opens_at = least(m.opens_at, clock() + make_interval(secs => f.wait))
        from (select f.shut_by, min(f.wait) as wait from fate f where f.closes and f.wait is not null group by f.shut_by) f
        where m.key = f.shut_by),
    noted as (
        insert into throttled as t (key, tenant, count, last_at)
        select f.shut_by, coalesce(f.tenant, ''), count(*), clock() from fate f where f.closes group by 1, 2 order by 1, 2
        on conflict (key, tenant) do update set count = t.count + excluded.count, last_at = excluded.last_at)
    select coalesce(array_agg(distinct f.flow) filter (where f.moves or f.closes or f.empties), '{}'),
           coalesce((select array_agg(distinct k) from fate f cross join unnest(f.keys) k
                     where (f.moves or f.closes or f.empties) and k is distinct from f.shut_by), '{}'),
           count(*) filter (where f.closes),
           (select jsonb_agg(distinct jsonb_build_object('queue', p_queue, 'priority', p_priority, 'direct', not p_direct,
                                                         'flow', w.flow, 'tenant', w.tenant)) from written w where w.moves)
    into flows, keys, closed, moved from fate f;
end $$;
