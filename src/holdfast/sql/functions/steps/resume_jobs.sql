-- Move parked jobs whose wait has ended into live, due now; a job that waits for something else by now stays. Return
-- their number. p_waits: for each job, what it waited for, as in later.waits_for.
-- Locks: later rows in id order.
-- Wakes: sleepers of the jobs' queues.
create or replace function resume_jobs(p_ids uuid[], p_waits text[]) returns bigint
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_jobs bigint;
begin
    with gone as (
        delete from later where ctid = any (array(
            select t.place from (select * from unnest(p_ids, p_waits) as g(id, waits_for) order by g.id) g cross join lateral (
                select l.ctid as place from later l where l.id = g.id and l.waits_for = g.waits_for for update) t))
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
