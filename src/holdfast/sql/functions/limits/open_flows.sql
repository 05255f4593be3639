-- Put flows with an open lane into their rings: a new flow at the front, a recently served one at its place. p_flows is
-- an array of objects with queue, priority, direct, flow and tenant. The caller holds the ring's lock.
create or replace function open_flows(p_flows jsonb, p_token bigint) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
begin
    insert into rings (queue, priority, direct, front) select distinct f.queue, f.priority, f.direct, p_token
    from jsonb_to_recordset(p_flows) as f(queue text, priority smallint, direct boolean) on conflict do nothing;
    with given as materialized (
        select distinct f.* from jsonb_to_recordset(p_flows)
            as f(queue text, priority smallint, direct boolean, flow bigint, tenant text)),
    fronts as materialized (
        select g.queue, g.priority, g.direct, coalesce((
            select s.tag from flows s
            where s.queue = r.queue and s.priority = r.priority and s.direct = r.direct and s.open and s.tag >= r.front
            order by s.tag, s.flow limit 1), greatest(p_token, r.front)) as front
        from (select distinct g.queue, g.priority, g.direct from given g) g
        join rings r on r.queue = g.queue and r.priority = g.priority and r.direct = g.direct)
    insert into flows as s (queue, priority, direct, flow, tag, open, tenant)
    select g.queue, g.priority, g.direct, g.flow, f.front, true, g.tenant
    from given g join fronts f on f.queue = g.queue and f.priority = g.priority and f.direct = g.direct
    order by 1, 2, 3, 4
    on conflict (queue, priority, direct, flow) do update
        set open = true, credit = 0, tag = greatest(s.tag, excluded.tag) where not s.open;
end $$;
