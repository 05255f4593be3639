-- The open lanes of the flows that are to be visited, of each flow those after the lane it was served from last, and how many jobs would be each lane's share.
-- Called by: claim_ring.
-- Locks: none.
-- Wakes: nobody.
create or replace function pick_lanes(p_queue text, p_priority integer, p_direct boolean, p_flows flow_turn[], p_quantum integer, p_least integer) returns lane_turn[]
language plpgsql
as $$
begin
    return array(
        select (row_number() over (order by l.flow, l.turn), l.flow, l.place, l.lane, l.tenant,
                case when l.ordered then (  -- the limits of an order's jobs may differ; those of the first one count
                    select j.keys::text[] from live j
                    where j.queue = p_queue and j.priority = p_priority and j.lane = l.lane and j.token is null
                      and (j.run_at, j.id) >= (l.mark_at, l.mark_id) and (j.deadline is null or j.deadline > clock())
                    order by j.queue, j.priority, j.lane, j.run_at, j.id limit 1) else l.keys end,
                l.ordered, l.mark_at, l.mark_id, l.want,
                case when l.ordered then 1 else greatest(ceil(l.want::double precision / count(*) over (partition by l.flow)), least(p_quantum, l.want)) end,
                null, null, false, null, null, 0)::lane_turn
        from (
            select f.n as flow, f.want, l.*, row_number() over () as turn from unnest(p_flows) f cross join lateral (
                (select l.ctid as place, l.lane, l.tenant, l.keys, l.ordered, l.mark_at, l.mark_id from lanes l
                 where l.queue = p_queue and l.priority = p_priority and l.direct = p_direct and l.flow = f.flow and l.open and l.lane > f.lane
                 order by l.queue, l.priority, l.direct, l.flow, l.lane limit greatest(f.want / 2.0, p_least))
                union all
                (select l.ctid, l.lane, l.tenant, l.keys, l.ordered, l.mark_at, l.mark_id from lanes l
                 where l.queue = p_queue and l.priority = p_priority and l.direct = p_direct and l.flow = f.flow and l.open and l.lane <= f.lane
                 order by l.queue, l.priority, l.direct, l.flow, l.lane limit greatest(f.want / 2.0, p_least))
                limit greatest(f.want / 2.0, p_least)) l
            where f.flow <> 0) l
        order by 1);
end $$;
