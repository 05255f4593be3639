-- The flows whose turn it is, the least recently served first, and how many jobs each may have: the same for all, by their weights, or what is left of a turn.
-- Called by: claim_ring.
-- Locks: none.
-- Wakes: nobody.
create or replace function pick_flows(
    p_queue text, p_priority integer, p_direct boolean, p_after bigint, p_room integer, p_quantum integer, p_plain boolean, p_terms claim_terms) returns flow_turn[]
language plpgsql
as $$
begin
    return array(
        select (f.n, f.place, f.flow, f.tag, f.lane, f.tenant, f.turn, least(f.turn, p_room - f.ahead))::flow_turn from (
            select f.*, sum(f.turn) over (order by f.n) - f.turn as ahead from (
                select f.*, greatest(least(
                    case when f.credit > 0 then f.credit
                         when p_terms.per_tenant is not null then greatest(floor(f.weight * p_room / sum(f.weight) over ()), 1)  -- the next lap shares the rest
                         else ceil(f.weight * p_room / sum(f.weight) over ()) end,
                    case when f.tenant is not null then p_terms.per_tenant - coalesce((p_terms.served ->> f.tenant)::integer, 0) end), 0)::integer as turn
                from (
                    select s.ctid as place, s.flow, s.tag, s.credit, s.lane, s.tenant, row_number() over (order by s.tag, s.flow) as n,
                           case when p_terms.weights then weight_of(s.tenant) else 1 end as weight
                    from flows s
                    where s.queue = p_queue and s.priority = p_priority and s.direct = p_direct and s.open and s.tag >= p_after
                      and (p_plain or s.flow <> 0)
                      -- those that have had all a tenant may have are passed by
                      and (p_terms.served is null or coalesce((p_terms.served ->> s.tenant)::integer, 0) < p_terms.per_tenant)
                    order by s.tag, s.flow limit least(p_room, greatest(p_room / p_quantum, 16))) f) f) f
        where f.turn > 0 and f.ahead < p_room order by f.n);
end $$;
