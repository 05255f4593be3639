-- Add to a batch's counters. Do nothing if retention has removed the batch.
-- Locks: the batch's counter row of this connection, which no other connection touches.
create or replace function count_batch(p_batch uuid, p_added bigint, p_succeeded bigint, p_failed bigint,
    p_canceled bigint) returns void
language sql set search_path from current set jit = off set enable_seqscan = off as $$
    insert into batch_counts as c (batch, backend, added, succeeded, failed, canceled, first_at, counted_at)
    select id, pg_backend_pid(), p_added, p_succeeded, p_failed, p_canceled, case when p_added = 0 then clock() end, clock()
    from batches where id = p_batch
    on conflict (batch, backend) do update
        set added = c.added + p_added, succeeded = c.succeeded + p_succeeded, failed = c.failed + p_failed,
            canceled = c.canceled + p_canceled, first_at = coalesce(c.first_at, excluded.first_at),
            counted_at = excluded.counted_at
$$;
