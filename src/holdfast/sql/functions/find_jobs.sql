-- Finds the jobs of the lanes' turns, and says of each lane how many it got. Jobs that do not belong to their lane, or whose task has limits of its own, move
-- to a lane where they do.
-- Called by: claim_ring.
-- Locks: live rows in lane order, skipping locked ones.
-- Wakes: nobody.
create or replace function find_jobs(
    p_queue text, p_priority integer, p_terms claim_terms, inout p_lanes lane_turn[], out places tid[], out ids uuid[], out deduped integer, out strayed boolean)
language plpgsql
as $$
declare
    v_wrong tid[];
begin
    with found as materialized (
        select u.*, f.* from unnest(p_lanes) u left join lateral (
            select array_agg(j.place) filter (where j.fits) as places, array_agg(j.id) filter (where j.fits) as ids,
                   count(j.dedupe_key) filter (where j.fits) as deduped, array_agg(j.place) filter (where not j.fits) as wrong
            from (
                select j.ctid as place, j.id, j.dedupe_key,
                       j.tenant is not distinct from u.tenant
                       and (u.ordered or j.keys::text[] is not distinct from u.own or coalesce(j.keys <@ u.own and j.keys @> u.own, false))
                       and (p_terms.tasks is null or j.task <> all (p_terms.tasks) or coalesce('task:' || j.task = any (j.keys), false)) as fits
                from live j
                where j.queue = p_queue and j.priority = p_priority and j.lane = u.lane and j.token is null and j.id <> all (p_terms.found)
                  and (j.run_at, j.id) >= (u.mark_at, u.mark_id) and (j.deadline is null or j.deadline > clock())
                order by j.queue, j.priority, j.lane, j.run_at, j.id limit u.take for update skip locked) j
            -- of an order only the first one, whatever its priority; one that another transaction holds keeps its place
            where not u.ordered or first_of_order(p_queue, u.lane, j.place)) f on u.take > 0)
    select array_agg((f.n, f.flow, f.place, f.lane, f.tenant, f.own, f.ordered, f.mark_at, f.mark_id, f.want, f.ask, f.take, f.keys, f.direct, f.shut_by, f.wait,
                      coalesce(cardinality(f.ids), 0))::lane_turn order by f.n),
           coalesce((select array_agg(j) from found f cross join unnest(f.places) j), '{}'),
           coalesce((select array_agg(j) from found f cross join unnest(f.ids) j), '{}'), coalesce(sum(f.deduped), 0),
           (select array_agg(j) from found f cross join unnest(f.wrong) j)
    into p_lanes, places, ids, deduped, v_wrong from found f;
    strayed := v_wrong is not null;
    if strayed then
        perform move_jobs(v_wrong, p_terms.tasks);
    end if;
end $$;
