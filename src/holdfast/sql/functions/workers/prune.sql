-- Removes, each after its retention period (decision 029 lists every table): history partitions (dropped, not deleted
-- from), expired dedupe keys (a message's once the message is gone too), webhook bodies without deliveries, workers
-- without a heartbeat for an hour, progress, ticks, usage, ended batches, the service's stored responses (setting
-- responses_hours), unused limits (prune_limits), tokens invalid for 90 days. Cancels abandoned batches
-- (end_abandoned). Never touches live, later or dead. Returns how much it removed, at most p_limit of each kind. Call
-- it again, in a new transaction, while rows_removed is p_limit or more.
-- Locks: history while it drops a partition; gives up after 50 ms so that workers do not queue up behind it.
create or replace function prune(p_limit integer default 1000, out partitions_dropped integer, out rows_removed integer)
language plpgsql security definer set search_path from current set lock_timeout = '50ms' set timezone = 'UTC' as $$
declare
    v_oldest date := clock()::date - (select value::integer from settings where name = 'history_retention_days');
    v_name text; v_ended uuid[]; v_rows integer; v_used integer; v_ticks integer; v_told integer; v_stray integer;
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
    delete from sleepers where ctid = any (array(  -- cut-off connections, which forget_sleepers() cannot detect
        select s.ctid from sleepers s where not exists (
            select 1 from workers w where w.id = s.worker and w.heartbeat_at > clock() - interval '5 minutes')
        for update skip locked));
    delete from history_default where ctid = any (array(
        select h.ctid from history_default h where h.finished_at < v_oldest order by h.finished_at limit p_limit));
    get diagnostics v_stray = row_count;
    delete from cancels c where c.requested_at < clock() - interval '1 minute' and not exists (
        select 1 from live l where l.id = c.id and l.token is not null);
    delete from ticks where id = any (array(
        select id from ticks where started_at < v_oldest order by started_at limit p_limit));
    get diagnostics v_ticks = row_count;
    delete from usage_counts where ctid = any (array(
        select ctid from usage_counts
        where minute < clock() - make_interval(days => (
            -- An invalid setting must not keep the rest from being pruned.
            select least(greatest(s.value::numeric, 0), 36500)::integer from settings s
            where s.name = 'usage_retention_days' and jsonb_typeof(s.value) = 'number'))
        order by minute limit p_limit));
    get diagnostics v_used = row_count;
    delete from progress where id = any (array(
        select id from progress where updated_at < v_oldest order by updated_at limit p_limit));
    get diagnostics v_rows = row_count;
    delete from responses where ctid = any (array(
        select a.ctid from responses a
        where a.created_at < clock() - make_interval(hours => (select value::integer from settings where name = 'responses_hours'))
        order by a.created_at limit p_limit for update skip locked));
    get diagnostics v_told = row_count;
    delete from api_tokens where least(expires_at, revoked_at) < clock() - interval '90 days';
    perform end_abandoned(p_limit, v_oldest);
    v_ended := array(select id from batches where finished_at < v_oldest order by finished_at limit p_limit);
    delete from batch_counts where batch = any (v_ended);
    delete from batches where id = any (v_ended);
    rows_removed := rows_removed + v_stray + v_rows + v_ticks + v_used + v_told + cardinality(v_ended) + prune_limits(p_limit, v_oldest);
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
