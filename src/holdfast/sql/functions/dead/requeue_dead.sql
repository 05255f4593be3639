-- Move failed and dead jobs back into live, for retry_dead and rerun. Return their ids, without those whose dedupe key a
-- newer job holds.
-- Locks: dead rows in id order, then dedupe keys in key order, then batch counters.
-- Wakes: sleepers of the jobs' queues.
create or replace function requeue_dead(p_ids uuid[]) returns setof uuid
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    -- In a statement of its own: the next one sees what was committed while a row was locked, such as the undo of steps.
    perform 1 from dead d where d.id = any (p_ids) order by d.id for update;
    return query
        with held as materialized (
            select d.ctid as place, d.id, d.dedupe_key, d.dedupe_scope, d.dedupe_keep
            from dead d where d.id = any (p_ids) order by d.id),
        free as materialized (
            select h.place from (select * from held order by dedupe_key) h
            where h.dedupe_key is null or (take_dedupe_key(
                h.dedupe_key, h.id, coalesce(h.dedupe_scope, 'queued'), h.dedupe_keep)).holder = h.id),
        gone as (delete from dead where ctid = any (array(select f.place from free f)) returning *),
        placed as (
            insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload,
                              dedupe_key, retry, last_error, batch, headers, keys, failures, durable, followed)
            select id, queue, priority, lane, clock(), created_at, max_attempts, task, tenant,
                   case when starts_with(task, 'channel:') then (payload::jsonb || '{"maybe_sent": true}')::json
                        else payload end,
                   dedupe_key, retry, last_error, batch, headers, keys, failures,
                   (select true from steps s where s.job = gone.id and s.undo_job is null limit 1), is_followed(gone.id)
            from gone returning id, queue, batch),
        left_groups as (
            insert into error_arrivals (failed)
            select array_agg(f.part) from (
                select (fingerprint, task, null, null, null, null, 0, -count(*), null, clock())::failed as part
                from gone group by fingerprint, task) f
            having count(*) > 0),
        uncounted as (select count_batch(batch, 0, 0, -count(*), 0) from placed where batch is not null group by batch),
        -- Steps that were undone run again.
        undone as (delete from steps s where s.job = any (array(select p.id from placed p)) and s.undo_job is not null),
        -- The row with check_at, which prune needs, may be among them.
        checked as (
            update steps set check_at = clock() + interval '1 day' where ctid = any (array(
                select f.at from placed p cross join lateral (
                    select s.ctid as at, s.check_at from steps s
                    where s.job = p.id and s.undo_job is null order by s.number limit 1) f
                where f.check_at is null))),
        -- A cancel request that came too late for the last run does not apply to this one.
        forgotten as (delete from cancels where id = any (array(select p.id from placed p))),
        woken as (select wake(queue, count(*)) from placed group by queue)
        select p.id from placed p where (select count(*) from woken) + (select count(*) from uncounted) >= 0;
end $$;
