-- Store the counts of this moment, unless the newest snapshot is younger than p_after: jobs by queue, task and tenant,
-- attempts of the last minute and how long they waited, workers. The cost does not grow with the tables: counts of
-- large ones are estimates, as `estimated` says. Store the minute that is over, too. Two callers at once store two: a
-- lock could be held by an open transaction.
-- Returns: whether jobs are due, run or ended in the last minute; null if it stored nothing.
create or replace function take_snapshot(p_after interval default '1 second') returns boolean
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    c_queues constant integer := 500; c_names constant integer := 100;
    v_began timestamptz := clock_timestamp(); v_now timestamptz := clock(); v_queues jsonb; v_tasks jsonb; v_tenants jsonb;
begin
    if exists (select 1 from snapshots s where s.at > v_now - p_after and s.at <= v_now) then return null; end if;
    perform close_minute(date_trunc('minute', v_now - interval '3 seconds') - interval '1 minute');  -- late commits are in
    with recent as (
        select r.queue, round(sum(r.ended)) as ended, round(sum(r.failed)) as failed, round(sum(r.lost)) as lost,
               sum(r.run_seconds) as run_seconds, array_agg(r.wait) as steps, array_agg(r.ended) as counts
        from recent_attempts r group by r.queue)
    select jsonb_agg(q) into v_queues from (
        select coalesce(d.queue, r.queue) as queue, coalesce(d.ready, 0) as ready, coalesce(d.running, 0) as running,
               coalesce(d.later, 0) as later, coalesce(d.dead, 0) as dead, date_part('epoch', d.oldest_wait) as oldest_wait,
               coalesce(d.estimated, '{}') as estimated, coalesce(r.ended, 0) as ended, coalesce(r.failed, 0) as failed,
               coalesce(r.lost, 0) as lost, coalesce(r.run_seconds, 0) as run_seconds,
               wait_at(r.steps, r.counts, 0.5) as p50, wait_at(r.steps, r.counts, 0.95) as p95,
               wait_at(r.steps, r.counts, 0.99) as p99
        from queue_depth d full join recent r on r.queue = d.queue
        order by coalesce(d.ready + d.running + d.later + d.dead, 0) desc, 1 limit c_queues) q;
    with named as materialized (
        select s.kind, s.name, sum(s.ready) as ready, sum(s.later) as later, sum(s.dead) as dead,
               array_agg(s.place) filter (where s.estimated) as estimated
        from (select 'ready' as place, kind, name, waiting as ready, 0 as later, 0 as dead, estimated from sample_names('live')
              union all select 'later', kind, name, 0, waiting, 0, estimated from sample_names('later')
              union all select 'dead', kind, name, 0, 0, waiting, estimated from sample_names('dead')) s
        group by s.kind, s.name),
    claimed as materialized (select c.task, c.tenant from claimed_jobs(null, 10000) c),
    recent as (
        select r.task, round(sum(r.ended)) as ended, round(sum(r.failed)) as failed, sum(r.run_seconds) as run_seconds,
               array_agg(r.wait) as steps, array_agg(r.ended) as counts
        from recent_attempts r group by r.task)
    select (
        select jsonb_agg(t) from (
            select coalesce(n.name, c.task, r.task) as task, coalesce(n.ready, 0) as ready, coalesce(c.running, 0) as running,
                   coalesce(n.later, 0) as later, coalesce(n.dead, 0) as dead, coalesce(n.estimated, '{}') as estimated,
                   coalesce(r.ended, 0) as ended, coalesce(r.failed, 0) as failed, coalesce(r.run_seconds, 0) as run_seconds,
                   wait_at(r.steps, r.counts, 0.5) as p50, wait_at(r.steps, r.counts, 0.95) as p95
            from (select * from named where kind = 'task') n
            full join (select task, count(*) as running from claimed group by task) c on c.task = n.name
            full join recent r on r.task = coalesce(n.name, c.task)
            order by coalesce(n.ready + n.later + n.dead, 0) desc, 1 limit c_names) t), (
        select jsonb_agg(t) from (
            select coalesce(n.name, c.tenant) as tenant, coalesce(n.ready, 0) as ready, coalesce(c.running, 0) as running,
                   coalesce(n.later, 0) as later, coalesce(n.dead, 0) as dead, coalesce(n.estimated, '{}') as estimated,
                   coalesce(c.running, 0) / (select greatest(count(*), 1) from claimed)::double precision as share
            from (select * from named where kind = 'tenant' and name is not null) n
            full join (select tenant, count(*) as running from claimed where tenant is not null group by tenant) c on c.tenant = n.name
            order by coalesce(c.running, 0) desc, coalesce(n.ready + n.later + n.dead, 0) desc, 1 limit c_names) t)
    into v_tasks, v_tenants;
    insert into snapshots (at, figures)
    select v_now, jsonb_build_object(
        'queues', coalesce(v_queues, '[]'), 'tasks', coalesce(v_tasks, '[]'), 'tenants', coalesce(v_tenants, '[]'),
        'workers', count(w.id), 'slots', coalesce(sum(w.concurrency), 0),
        'seconds', round(extract(epoch from clock_timestamp() - v_began), 4))
    from workers w where not w.stopping and is_alive(w.id, w.heartbeat_at)
    on conflict (at) do update set figures = excluded.figures;
    return exists (
        select 1 from jsonb_to_recordset(v_queues) as q(ready bigint, running bigint, ended double precision)
        where q.ready + q.running + q.ended > 0);
end $$;
