-- Writes down what became of flows in their turns: those that were served go to the end of the ring; one whose turn the claim had no room for goes on there
-- next time; one without open lanes leaves the ring. p_plain: jobs of the plain flow; p_left: flows that lanes have left.
-- Called by: claim_ring.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function write_flows(
    p_queue text, p_priority integer, p_direct boolean, p_flows flow_turn[], p_lanes lane_turn[], p_plain integer, p_left integer[], p_tag bigint) returns void
language plpgsql
as $$
begin
    with served as materialized (  -- grouped, not joined: a join of two lists is quadratic under a plan for empty tables
        select g.n, max(g.place) as place, max(g.flow) as flow, max(g.tag) as tag, max(g.turn) as turn, max(g.want) as want, sum(g.got) as got,
               (array_agg(g.lane order by g.at desc))[1] as lane, max(g.at) as at
        from (
            select f.n, f.place, f.flow, f.tag, f.turn, f.want, case when f.flow = 0 then p_plain else 0 end as got, f.lane, 0 as at from unnest(p_flows) f
            union all
            select u.flow, null, null, null, null, null, u.got, u.lane, u.n from unnest(p_lanes) u
            where u.take > 0 or u.shut_by is not null or u.direct <> p_direct) g
        group by g.n)
    update flows s set lane = v.lane, credit = case when v.got = v.want then v.turn - v.want else 0 end,
        tag = case when v.got = v.want and v.want < v.turn then v.tag else p_tag + v.n end,
        open = v.flow = 0 or v.at > 0 and v.n <> all (p_left) or (
            select true from lanes l  -- not "exists": it may be planned as a hash of all lanes
            where l.queue = p_queue and l.priority = p_priority and l.direct = p_direct and l.flow = s.flow and l.open limit 1) is true
    from served v where s.ctid = v.place;
end $$;
