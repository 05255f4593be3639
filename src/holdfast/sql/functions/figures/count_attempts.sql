-- Add ended attempts to the rows of this minute, in the transaction that ends them.
-- Locks: rows that only this connection writes, so there is no contention.
create or replace function count_attempts(p_counted counted[]) returns void
language plpgsql strict as $$
begin
    insert into attempt_counts as c (minute, queue, task, wait, backend, ended, failed, lost, run_seconds)
    select date_trunc('minute', clock()), e.queue, e.task, e.wait, pg_backend_pid(), e.ended, e.failed, e.lost, e.run_seconds
    from unnest(p_counted) e
    on conflict (minute, queue, task, wait, backend) do update set
        ended = c.ended + excluded.ended, failed = c.failed + excluded.failed, lost = c.lost + excluded.lost,
        run_seconds = c.run_seconds + excluded.run_seconds;
end $$;
