-- End the waits of jobs for a child or a batch, and resume the jobs.
-- Locks: later rows in id order, then rows of steps.
-- Wakes: sleepers of the jobs' queues.
create or replace function end_parent_waits(p_ref uuid, p_result json) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_jobs uuid[]; v_waits text[];
begin
    select array_agg(s.job order by s.job, s.name), array_agg(s.kind || ' ' || s.name order by s.job, s.name) into v_jobs, v_waits
    from steps s where s.ref = p_ref and s.finished_at is null;
    if v_jobs is null then return; end if;
    perform 1 from later l where l.id = any (v_jobs) order by l.id for update;
    update steps set finished_at = clock(), result = p_result where ref = p_ref and finished_at is null;
    perform resume_jobs(v_jobs, v_waits);
end $$;
