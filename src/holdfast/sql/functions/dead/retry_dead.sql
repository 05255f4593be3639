-- Retry failed and dead jobs, with fresh attempts; their failures stay on record. Return their ids; a job whose dedupe
-- key a newer job holds stays dead. The deadline is dropped, since a retry is meant to run. For a message it stays
-- recorded that earlier attempts may have sent it, although attempts are counted from zero. Steps that were undone run
-- again, and waits that ended badly are open again (reopen_waits).
-- Locks: as requeue_dead; then as reopen_waits.
-- Wakes: sleepers of the jobs' queues.
create or replace function retry_dead(p_ids uuid[]) returns setof uuid
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_jobs uuid[] := array(select requeue_dead(p_ids));
begin
    perform reopen_waits(v_jobs);
    return query select unnest(v_jobs);
end $$;
