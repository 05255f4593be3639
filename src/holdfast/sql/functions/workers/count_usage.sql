-- Add the usage of ended attempts to the rows of this minute, in the transaction that ends the attempts: usage is
-- counted if and only if they have ended.
-- Locks: rows that only this connection writes, so there is no contention.
create or replace function count_usage(p_used used[]) returns void
language plpgsql strict as $$
begin
    insert into usage_counts as c (minute, tenant, task, backend, runs, failures, run_seconds, queue_seconds)
    select date_trunc('minute', clock()), u.tenant, u.task, pg_backend_pid(), u.runs, u.failures, u.run_seconds, u.queue_seconds
    from unnest(p_used) u
    on conflict (minute, tenant, task, backend) do update set
        runs = c.runs + excluded.runs, failures = c.failures + excluded.failures,
        run_seconds = c.run_seconds + excluded.run_seconds, queue_seconds = c.queue_seconds + excluded.queue_seconds;
end $$;
