-- Return the status of a job that has ended, and keep it from being retried or rerun until the caller's transaction
-- ends. Return null if it has not ended or no longer exists.
-- Locks: the job's row in dead or history, shared with other callers.
create or replace function hold_ended(p_job uuid) returns job_status
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_status job_status;
begin
    select d.status into v_status from dead d where d.id = p_job for key share;
    if not found then  -- in a later statement: a discarded job is in history by now
        select h.status into v_status from history h where h.id = p_job for key share;
    end if;
    return v_status;
end $$;
