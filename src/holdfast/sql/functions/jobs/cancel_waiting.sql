-- Cancel those of the given jobs that wait, and return their ids. p_error is the reason and gets the last error as
-- its cause; null keeps the last error. p_defer: the caller processes their end (process_endings).
-- Locks: later rows, then live rows, each in id order; then dedupe keys and batch counters; limits without waiting.
-- Wakes: sleepers, when a job kept an order.
create or replace function cancel_waiting(p_ids uuid[], p_error jsonb default null, p_defer boolean default false) returns setof uuid
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
    return query
        with put_off as (
            delete from later where ctid = any (array(
                select l.ctid from later l where l.id = any (p_ids) order by l.id for update))
            returning *),
        due as (
            delete from live where ctid = any (array(
                select l.ctid from live l where l.id = any (p_ids) and l.token is null order by l.id for update))
            returning *),
        gone as materialized (select * from put_off union all select * from due),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at,
                                 queue, task, tenant, payload, dedupe_key, last_error, batch, failures)
            select id, 'canceled', priority, attempt, max_attempts, run_at, created_at, clock(),
                   queue, task, tenant, payload, dedupe_key,
                   coalesce(p_error || jsonb_strip_nulls(jsonb_build_object('cause', last_error)), last_error), batch, failures
            from gone returning id, dedupe_key, batch),
        ended_for_others as (
            insert into endings (job, status, durable, followed)
            select id, case when p_error ->> 'code' = 'SKIPPED' then 'skipped' else 'canceled' end, coalesce(durable, false), coalesce(followed, false)
            from gone where durable or followed),
        freed as (select free_dedupe_keys(array_agg(dedupe_key), array_agg(k.id), false) from kept k
                  where dedupe_key is not null),
        counted as (select count_batch(batch, 0, 0, 0, count(*)) from kept where batch is not null group by batch),
        ended as (
            select release_limits(array_agg((g.id, g.held, 0, null)::freed))
            from gone g where g.held is not null having count(*) > 0)
        select k.id from kept k
        where (select count(*) from freed) + (select count(*) from counted) + (select count(*) from ended) >= 0;
    if not p_defer and exists (select 1 from endings e where e.xid = pg_current_xact_id_if_assigned()) then perform process_endings(); end if;
end $$;
