-- Move parked jobs whose wait has ended into live, due now; a job that waits for something else by now stays. Return
-- their number. p_waits: for each job, what it waited for, as in later.waits_for.
-- Locks: later rows in id order.
-- Wakes: sleepers of the jobs' queues.
create or replace function resume_jobs(p_ids uuid[], p_waits text[]) returns bigint
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_jobs bigint;
begin
    -- In a statement of its own: a row that changed while it was waited for has a place that this snapshot does not show.
    perform 1 from later l where l.id = any (p_ids) order by l.id for update;
    with gone as (
        delete from later where ctid = any (array(
            select t.place from unnest(p_ids, p_waits) as g(id, waits_for) cross join lateral (
                select l.ctid as place from later l where l.id = g.id and l.waits_for = g.waits_for offset 0) t))
        returning *),
    placed as (
        insert into live (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                          dedupe_key, retry, last_error, deadline, batch, headers, keys, held, failures, durable, followed)
        select id, queue, priority, lane, clock(), created_at, attempt, max_attempts, task, tenant, payload,
               dedupe_key, retry, last_error, deadline, batch, headers, keys, held, failures, durable, followed
        from gone on conflict do nothing returning queue),
    woken as (select wake(queue, count(*)) from placed group by queue)
    select count(*) into v_jobs from placed where (select count(*) from woken) >= 0;
    return v_jobs;
end $$;
