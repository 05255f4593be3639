-- Record that a key was found blocked, for operators. It must raise no error except lock_not_available: a failure that
-- cannot be stored would be a lost job.
-- Locks: the key's row. It gives up after 100 ms if another transaction holds it. A worker then finishes its jobs one
--   by one, so that only those under this key wait.
create or replace function note_block(p_key text, p_reason text, p_job uuid) returns void
language sql set search_path from current set jit = off set enable_seqscan = off set lock_timeout = '100ms' as $$
    insert into blocks as b (key, reason, count, first_seen, last_seen, last_job)
    values (left(p_key, 500), left(p_reason, 1000), 1, clock(), clock(), p_job)
    on conflict (key) do update set reason = excluded.reason, count = b.count + 1, last_seen = clock(), last_job = p_job
$$;
