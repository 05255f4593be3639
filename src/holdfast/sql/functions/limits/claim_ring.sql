-- Find jobs of a queue and priority that may start now and count them into their limits, in rounds in which flows and
-- their lanes take turns. The next round shares what a flow could not use. The direct ring goes first: its jobs start
-- when they are claimed, so they need free slots.
-- Locks: live rows in lane order with SKIP LOCKED. The caller holds the ring's lock.
create or replace function claim_ring(p_claim claim_state, p_queue text, p_priority integer) returns claim_state
language plpgsql set search_path from current set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    v_plain boolean := has_plain(p_claim, p_queue, p_priority); v_direct boolean; v_front bigint; v_room integer;
    v_round record; v_rounds integer := 0; v_got integer; v_rest boolean;
begin
    if v_plain then  -- plain jobs take part as lane 0, in the ring that a limit of the whole queue decides
        v_direct := coalesce((select s.direct from limit_state s where s.key = p_claim.queue_key), false);
        insert into lanes as l (queue, priority, lane, flow, direct, open) values (p_queue, p_priority, 0, 0, v_direct, true)
        on conflict (queue, priority, lane) do update set direct = v_direct where l.direct <> v_direct;
        if found then
            perform open_flows(jsonb_build_array(jsonb_build_object('queue', p_queue, 'priority', p_priority, 'direct', v_direct, 'flow', 0)), p_claim.token);
        end if;
    end if;
    for v_pass in 1..2 loop  -- a second pass if lanes have moved to the other ring
        p_claim.moved := false;
        foreach v_direct in array case when p_claim.only_direct then '{true}'::boolean[] else '{true,false}' end loop
            v_front := (select r.front from rings r where r.queue = p_queue and r.priority = p_priority and r.direct = v_direct);
            v_got := null;
            v_rest := false;
            loop
                exit when p_claim.cut;
                v_room := least(p_claim.most - cardinality(p_claim.ids), case when v_direct then p_claim.free - cardinality(p_claim.direct) end);
                exit when v_front is null or v_room <= 0;
                -- A round that finds nothing has closed the lanes it visited: the next one visits more.
                v_round := claim_round(p_claim, p_queue, p_priority, v_direct, v_room, v_plain, case v_got when 0 then 500 else 2 end, v_front,
                                   greatest(p_claim.token, v_front) + v_rounds * 1000, v_rest);
                exit when v_round.flows = 0;
                p_claim := v_round.p_claim;
                v_got := v_round.got;
                v_plain := v_plain and not v_round.plain_ends;
                v_rounds := v_rounds + 1;
                v_front := v_round.p_front;
                v_rest := v_round.p_rest;
                exit when v_round.settled;
                continue when v_got = v_room;
                if not (v_got > 0 or v_round.changed or exists (  -- a flow not visited yet
                    select 1 from flows s
                    where s.queue = p_queue and s.priority = p_priority and s.direct = v_direct and s.open and s.tag between v_front and greatest(p_claim.token, v_front)
                      and (v_plain or s.flow <> 0)
                      and (p_claim.served is null or coalesce((p_claim.served ->> s.tenant)::integer, 0) < p_claim.per_tenant) limit 1)) then
                    exit;
                elsif v_rounds > 10 or v_got = 0 and p_claim.ids <> '{}' and p_claim.repeats then  -- found jobs do not wait until lanes are closed
                    p_claim.more := true;
                    p_claim.cut := not v_direct;
                    exit;
                end if;
            end loop;
        end loop;
        exit when p_claim.cut or not p_claim.moved;
    end loop;
    return p_claim;
end $$;
