-- Fold arrivals since the last claim into the ring: open their lanes, and move a lane's mark back if a job stands
-- before it. Return whether more arrivals are left. The caller holds the ring's lock.
create or replace function fold_arrivals(p_queue text, p_token bigint) returns boolean
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    v_most integer := 2000; v_fold folds;
    v_from xid8 := least(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned());
    v_open xid8[] := array(select x from pg_snapshot_xip(pg_current_snapshot()) x); v_places tid[]; v_flows jsonb;
begin
    select * into v_fold from folds f where f.queue = p_queue and f.from_xid <= v_from;  -- else it was restored from another server
    v_places := array(select a.ctid from arrivals a where a.queue = p_queue and a.xid >= coalesce(v_fold.from_xid, '0')
                      order by a.queue, a.xid limit v_most)
             || array(select a.ctid from arrivals a where a.queue = p_queue and a.xid < v_fold.from_xid and a.xid = any (v_fold.open_xids) limit v_most);
    if v_places = '{}' then return false; end if;
    with gone as (delete from arrivals where ctid = any (v_places) returning priority, lane, run_at, tenant, keys),
    arrived as materialized (
        select g.priority, g.lane, min(g.run_at) as run_at, min(g.tenant) as tenant, min(g.keys) as keys
        from gone g group by g.priority, g.lane),
    known as materialized (
        select a.*, l.place, l.flow, l.direct, l.open or l.closed_by is not null as waits, l.mark_at
        from arrived a left join lateral (
            select l.ctid as place, l.flow, l.direct, l.open, l.closed_by, l.mark_at from lanes l
            where l.queue = p_queue and l.priority = a.priority and l.lane = a.lane offset 0) l on true),
    keyed as (
        select make_limits(array_agg(k.key)) from known n cross join unnest(n.keys) as k(key) where n.place is null having count(*) > 0),
    made as (
        insert into lanes (queue, priority, lane, flow, direct, ordered, open, tenant, keys)
        select p_queue, n.priority, n.lane, case when n.tenant is null then 1 else lane_of(n.tenant, null) end,
               -- known from the start: slots are kept for direct lanes only
               (exists (select 1 from limit_rules r where r.rate is not null or r.breaker_after is not null)
                or exists (select 1 from limit_settings s where s.rate is not null or s.breaker_after is not null))
               and exists (
                   select 1 from unnest(n.keys || array['queue:' || p_queue, 'tenant:' || n.tenant]) k
                   where exists (select 1 from limit_settings s where s.key = k and (s.rate is not null or s.breaker_after is not null))
                      or exists (  -- rule_of is expensive, and few keys match such rules
                          select 1 from limit_rules r where (r.rate is not null or r.breaker_after is not null)
                             and case when k like r.pattern then r.template = rule_of(k) end)),
               exists (select 1 from unnest(n.keys) k where k like 'order:%'), true, n.tenant, n.keys
        from known n where n.place is null returning priority, direct, flow, tenant),
    moved as (
        update lanes l set open = l.open or l.closed_by is null, mark_at = least(l.mark_at, n.run_at),
            mark_id = case when n.run_at <= l.mark_at then '00000000-0000-0000-0000-000000000000' else l.mark_id end
        from known n where l.ctid = n.place and (not n.waits or n.run_at <= n.mark_at))
    select jsonb_agg(f) into v_flows from (
        select distinct p_queue as queue, n.priority, n.direct, n.flow, n.tenant from known n where not n.waits
        union select p_queue, m.priority, m.direct, m.flow, m.tenant from made m) f
    where (select count(*) from keyed) >= 0;
    if v_flows is not null then perform open_flows(v_flows, p_token); end if;
    perform move_fold(p_queue, v_from, v_open, p_token, cardinality(v_places), v_most);
    return cardinality(v_places) >= v_most;
end $$;
