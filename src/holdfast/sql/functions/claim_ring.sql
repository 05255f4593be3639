-- Finds up to p_room jobs of one ring that may start now, and counts them into their limits. Flows take turns, the least recently served first, and the
-- lanes of a flow take turns within it. In each lap lanes are picked, their limits asked, jobs found, and all of it is written down; what some could
-- not use goes to the others in the next lap.
-- Called by: claim, which holds the ring's lock.
-- Locks: live rows in lane order, skipping locked ones.
-- Wakes: nobody.
create or replace function claim_ring(p_queue text, p_priority integer, p_direct boolean, p_room integer, p_terms claim_terms) returns found_jobs
language plpgsql
set search_path from current set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
    -- The least jobs of a turn. Each turn costs a visit, so workers take several; with a cap as many tenants as possible are to advance.
    v_quantum integer := case when p_terms.per_tenant is null then 8 else 1 end;
    v_front   bigint := (select r.front from rings r where r.queue = p_queue and r.priority = p_priority and r.direct = p_direct);
    v_room    integer := p_room;
    v_plain   boolean := not p_direct and has_plain(p_queue, p_priority, p_terms);
    v_flows   flow_turn[];
    v_flow    flow_turn;
    v_lanes   lane_turn[];
    v_found   record;
    v_part    found_jobs;
    v_after   record;
    v_got     integer;
    v_visits  integer := 0;
    v_strayed boolean := false;  -- jobs have moved to lanes that the next claim finds
    v_all     found_jobs := ('{}', '{}', 0, '{}', 0, false, false);
begin
    for v_lap in 1..10 loop
        v_flows := pick_flows(p_queue, p_priority, p_direct, v_front, v_room, v_quantum, v_plain, p_terms);
        exit when v_flows = '{}';
        v_flow := v_flows[1];
        if v_flow.tag - v_front > 200000::bigint << 10 and v_lap = 1 and p_terms.served is null then  -- 0.2 s, as tokens count
            update rings r set front = v_flow.tag where r.queue = p_queue and r.priority = p_priority and r.direct = p_direct;
            update flows s set tag = v_flow.tag  -- which was not picked where no plain job waits
            where s.queue = p_queue and s.priority = p_priority and s.direct = p_direct and s.flow = 0 and s.tag < v_flow.tag;
        end if;
        -- Where a lap finds nothing, the lanes of its flows are closed: the next one looks at more of them.
        v_lanes := ask_limits(pick_lanes(p_queue, p_priority, p_direct, v_flows, v_quantum, case v_got when 0 then 500 else 1 end), p_direct, p_terms);
        v_found := find_jobs(p_queue, p_priority, p_terms, v_lanes);
        v_lanes := v_found.p_lanes;
        -- counted before plain jobs ask: they may be under a limit of the whole queue too
        v_all := add_found(v_all, (v_found.places, v_found.ids, v_found.deduped, start_under_limits(v_lanes, v_found.ids, p_direct, p_terms), 0, false, false));
        v_part := ('{}', '{}', 0, '{}', 0, false, false);
        if v_plain then
            foreach v_flow in array v_flows loop
                if v_flow.flow = 0 then
                    v_part := claim_plain(p_queue, p_priority, v_flow.want, p_terms);
                    v_plain := cardinality(v_part.ids) = v_flow.want or v_part.more;
                    v_all := add_found(v_all, v_part);
                    p_terms.free := p_terms.free - cardinality(v_part.ids);
                end if;
            end loop;
        end if;
        v_got := cardinality(v_found.ids) + cardinality(v_part.ids);
        v_room := v_room - v_got;
        p_terms.found := p_terms.found || v_part.ids || v_found.ids;
        v_after := write_lanes(p_queue, p_priority, p_direct, v_lanes, p_terms);
        perform write_flows(p_queue, p_priority, p_direct, v_flows, v_lanes, cardinality(v_part.ids), v_after.flows,
                            greatest(p_terms.token, v_front) + v_visits);
        v_visits := v_visits + cardinality(v_flows);
        v_all.closed := v_all.closed + v_after.closed;
        if v_after.moved is not null then
            perform open_flows(v_after.moved, p_terms.token);
            v_all.moved := true;
        end if;
        if v_after.keys <> '{}' then
            perform reopen_lanes(v_after.keys, p_terms.token);
        end if;
        if p_terms.per_tenant is not null then
            p_terms.served := add_served(p_terms.served, v_lanes);
        end if;
        v_strayed := v_strayed or v_found.strayed or v_part.more;
        v_all.more := v_room > 0 and (
            v_got > 0 or v_after.flows <> '{}' or v_found.strayed or v_part.more
            or (select true from flows s  -- not visited yet: what others hold keeps nobody else's jobs from being found
                where s.queue = p_queue and s.priority = p_priority and s.direct = p_direct and s.open and s.tag >= v_front
                  and s.tag <= greatest(p_terms.token, v_front) and (v_plain or s.flow <> 0)
                  and (p_terms.served is null or coalesce((p_terms.served ->> s.tenant)::integer, 0) < p_terms.per_tenant) limit 1) is true);
        exit when not v_all.more;
    end loop;
    v_all.more := v_all.more or v_strayed;
    return v_all;
end $$;
