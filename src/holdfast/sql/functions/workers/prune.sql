-- Remove, each after its retention period (decision 029 lists every table): history partitions (dropped, not deleted
-- from), expired dedupe keys (a message's once the message is gone too), webhook bodies without deliveries, workers
-- without a heartbeat for an hour, requests to stop such workers, progress, job logs, error groups (prune_errors),
-- ticks, usage, snapshots and their minutes, ended batches, steps of jobs that are gone (prune_steps), signals, breaker
-- events after 30 days, the service's stored responses (responses_hours), ended actions (actions_retention_days),
-- unused limits (prune_limits), tokens invalid for 90 days. Cancel abandoned batches and sum earlier usage
-- (fold_usage). Never touch live, later or dead.
-- Returns: how much it removed, at most p_limit of each kind. Call it again, in a new transaction, while rows_removed
--   is p_limit or more.
-- Locks: history while it drops a partition; gives up after 50 ms so that workers do not queue up behind it.
--   Other rows: skipping locked ones; batches as cancel_batch.
-- Wakes: the queues of callbacks of abandoned batches.
create or replace function prune(p_limit integer default 1000, out partitions_dropped integer, out rows_removed integer)
language plpgsql security definer set search_path from current set lock_timeout = '50ms' set timezone = 'UTC'
set jit = off set enable_seqscan = off as $$
declare
    v_oldest date := clock()::date - (select value::integer from settings where name = 'history_retention_days');
    v_name text; v_column text; v_before timestamptz; v_ended uuid[]; v_id uuid; v_rows integer;
begin
    with expired as materialized (
        select key, id, starts_with(key, 'outbox' || chr(31)) and times_accepted(id) > 0 as known
        from dedupe where expires_at <= clock() order by expires_at limit p_limit for update skip locked),
    -- A message that still exists keeps its key, so that no second message with that key can be created.
    kept as (update dedupe d set expires_at = clock() + interval '1 day' from expired e where d.key = e.key and e.known)
    delete from dedupe d using expired e where d.key = e.key and not e.known;
    get diagnostics rows_removed = row_count;
    with expired as materialized (
        select b.id, b.deliveries from webhook_bodies b
        where b.expires_at <= clock() order by b.expires_at limit p_limit for update skip locked),
    -- One lookup for all: an event may have many deliveries.
    known as materialized (
        select unnest(seen_jobs(true, null, true, array(select unnest(e.deliveries) from expired e))) as id),
    needed as materialized (
        select d.body, array_agg(d.id) as deliveries
        from (select e.id as body, unnest(e.deliveries) as id from expired e) d join known k on k.id = d.id group by d.body),
    kept as (
        update webhook_bodies b set expires_at = clock() + interval '1 day', deliveries = n.deliveries
        from needed n where b.id = n.body)
    delete from webhook_bodies b
    where b.id = any (array(select e.id from expired e)) and b.id <> all (array(select n.body from needed n));
    get diagnostics v_rows = row_count;
    rows_removed := rows_removed + v_rows;
    delete from workers where ctid = any (array(
        select w.ctid from workers w where w.heartbeat_at < clock() - interval '1 hour' for update skip locked));
    delete from worker_stops where ctid = any (array(
        select s.ctid from worker_stops s where s.requested_at < clock() - interval '1 hour'
            and not exists (select 1 from workers w where w.id = s.worker) for update skip locked));
    delete from sleepers where ctid = any (array(  -- cut-off connections, which forget_sleepers() cannot detect
        select s.ctid from sleepers s where not exists (
            select 1 from workers w where w.id = s.worker and w.heartbeat_at > clock() - interval '5 minutes')
        for update skip locked));
    delete from cancels c where c.requested_at < clock() - interval '1 minute' and not exists (
        select 1 from live l where l.id = c.id and l.token is not null);
    for v_name, v_column, v_before in select * from (values
        ('signals', 'expires_at', clock()),
        ('history_default', 'finished_at', v_oldest::timestamptz), ('ticks', 'started_at', v_oldest),
        ('progress', 'updated_at', v_oldest), ('job_logs', 'updated_at', v_oldest),
        ('snapshots', 'at', clock() - interval '1 minute'), ('breaker_events', 'at', clock() - interval '30 days'),
        ('attempt_counts', 'minute', clock() - interval '10 minutes'), ('minutes', 'minute', clock() - interval '48 hours'),
        ('responses', 'created_at', clock() - make_interval(
            hours => (select value::integer from settings where name = 'responses_hours'))),
        ('actions', 'finished_at', clock() - make_interval(
            days => (select value::integer from settings where name = 'actions_retention_days'))),
        -- An invalid setting must not keep the rest from being pruned.
        ('usage_counts', 'minute', clock() - make_interval(days => (
            select least(greatest(s.value::numeric, 0), 36500)::integer from settings s
            where s.name = 'usage_retention_days' and jsonb_typeof(s.value) = 'number')))) t
    loop
        execute format('delete from %1$I where ctid = any (array(select ctid from %1$I where %2$I < $1 order by %2$I '
                       'limit $2 for update skip locked))', v_name, v_column) using v_before, p_limit;
        get diagnostics v_rows = row_count;
        rows_removed := rows_removed + v_rows;
    end loop;
    delete from api_tokens where least(expires_at, revoked_at) < clock() - interval '90 days';
    -- Abandoned open batches: no job waits or runs, and nothing was added or ended since. They end as if the block that
    -- opened them had raised, and their callback is enqueued.
    for v_id in select b.id from batches b
        where b.finished_at is null and b.open and b.created_at < v_oldest
          and not exists (select 1 from batch_counts c where c.batch = b.id and c.counted_at >= v_oldest)
          and not exists (select 1 from live l where l.batch = b.id)
          and not exists (select 1 from later l where l.batch = b.id)
        order by b.id limit p_limit for update of b skip locked
    loop
        perform cancel_batch(v_id);
    end loop;
    v_ended := array(select id from batches where finished_at < v_oldest order by finished_at limit p_limit);
    delete from batch_counts where batch = any (v_ended);
    delete from batches where id = any (v_ended);
    rows_removed := rows_removed + cardinality(v_ended) + prune_errors(p_limit, v_oldest)
        + prune_limits(p_limit, v_oldest) + fold_usage(p_limit) + prune_steps(p_limit);
    partitions_dropped := 0;
    for v_name in select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'history'::regclass and c.relname ~ '^history_[0-9]{8}$'
          and to_date(substring(c.relname from 9), 'YYYYMMDD') < v_oldest
        order by 1
    loop
        begin  -- a partition that is being read waits for the next round, so that no finish queues up behind the drop
            execute format('drop table %I', v_name);
            partitions_dropped := partitions_dropped + 1;
        exception when lock_not_available then
            exit;
        end;
    end loop;
end $$;
