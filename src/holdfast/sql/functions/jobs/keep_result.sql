-- Store the result of a job that has already succeeded: one that was finished inside its handler's transaction, which
-- ends before the handler returns.
-- Locks: the job's history row.
create or replace function keep_result(p_id uuid, p_result jsonb) returns void
language sql security definer set search_path from current set jit = off set enable_seqscan = off as $$
    update history set result = p_result where id = p_id and status = 'succeeded' and result is null
$$;
