-- Says of each lane how many jobs its limits let start now. The room of a key that several lanes share is given out in the order of their turns: a lane
-- gets what those before it have not asked for, so no key is ever above its limit.
-- Called by: claim_ring, claim_plain, which hold the ring's lock: nobody else counts meanwhile.
-- Locks: none.
-- Wakes: nobody.
create or replace function ask_limits(p_lanes lane_turn[], p_direct boolean, p_terms claim_terms) returns lane_turn[]
language plpgsql
as $$
declare
    v_lanes lane_turn[];
begin
    v_lanes := array(
        with asked as (  -- a row for each lane and key
            select u.n, u as lane, k.key, s.room, s.wait, s.direct, s.room - sum(u.ask) over (partition by k.key order by u.n) + u.ask as left_over
            from unnest(p_lanes) u left join lateral (
                select k.key, true as own from unnest(u.own) as k(key)
                union all
                select k.key, false from unnest(array[p_terms.queue_key, case when p_terms.tenants then 'tenant:' || u.tenant end]) as k(key)
                where k.key <> all (coalesce(u.own, '{}'))) k on true
            left join lateral (
                select s.room, s.wait, s.direct from limit_state s where s.key = k.key and (k.own or s.says) offset 0) s on true),
        judged as (  -- grouped, not joined: a join of two lists is quadratic under a plan for empty tables
            select (array_agg(a.lane))[1] as u, array_agg(a.key) filter (where a.room is not null) as keys, coalesce(bool_or(a.direct), false) as direct,
                   case when coalesce(bool_or(a.direct), false) <> p_direct then 0 else greatest(least(min((a.lane).ask), min(a.left_over)), 0) end as take,
                   -- the key that it must wait for longest
                   (array_agg(a.key order by a.wait desc nulls first, a.key) filter (where a.room <= 0))[1] as shut_by,
                   (array_agg(a.wait order by a.wait desc nulls first, a.key) filter (where a.room <= 0))[1] as wait
            from asked a group by a.n)
        select ((j.u).n, (j.u).flow, (j.u).place, (j.u).lane, (j.u).tenant, (j.u).own, (j.u).ordered, (j.u).mark_at, (j.u).mark_id, (j.u).want, (j.u).ask,
                greatest(least(j.take, (j.u).want - sum(j.take) over (partition by (j.u).flow order by (j.u).n) + j.take), 0),
                j.keys, j.direct, j.shut_by, j.wait, 0)::lane_turn
        from judged j order by (j.u).n);
    if exists (select 1 from unnest(v_lanes) u where u.own is not null and not u.own <@ coalesce(u.keys, '{}')) then
        -- A key that was idle for long has been forgotten (prune_limits). It begins anew, as on the first day.
        perform make_limits(array(select k from unnest(p_lanes) u cross join unnest(u.own) k));
        return ask_limits(p_lanes, p_direct, p_terms);
    end if;
    return v_lanes;
end $$;
