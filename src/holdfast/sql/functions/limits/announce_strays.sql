-- Announce lanes of waiting jobs that the ring does not know of, or whose jobs stand before their lane's mark. They
-- exist only if triggers were off when the jobs were inserted (a restore, logical replication), or if a client set
-- holdfast.announces and did not call announce_lanes. Read p_pages consecutive pages, chosen at random, as
-- reclaim_orphans does. Return the number of lanes.
-- Wakes: sleepers of the jobs' queues.
create or replace function announce_strays(p_pages integer default 50) returns integer
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    v_pages bigint := pg_relation_size('live') / current_setting('block_size')::integer;
    v_from bigint := floor(random() * ceil(v_pages / p_pages::double precision)) * p_pages; v_queues text[];
begin
    with strays as (
        insert into arrivals (queue, priority, lane, run_at, tenant, keys)
        select distinct on (j.queue, j.priority, j.lane) j.queue, j.priority, j.lane, j.run_at, j.tenant, j.keys from live j
        where j.ctid >= format('(%s,0)', v_from)::tid and j.ctid < format('(%s,0)', v_from + p_pages)::tid
          and j.lane <> 0 and j.token is null and j.created_at < clock() - interval '10 seconds'
          and not exists (
              select 1 from lanes l where l.queue = j.queue and l.priority = j.priority and l.lane = j.lane
                and (l.open or l.closed_by is not null) and (l.mark_at, l.mark_id) <= (j.run_at, j.id))
        order by j.queue, j.priority, j.lane, j.run_at returning queue)
    select array_agg(s.queue) into v_queues from strays s;
    perform wake(q) from (select distinct unnest(v_queues) as q) w;
    return coalesce(cardinality(v_queues), 0);
end $$;
