-- Enqueue the undo of the steps of a job that has ended without success, unless a person has retried it meanwhile.
-- Locks: as hold_ended and undo_steps. Wakes: as undo_steps.
create or replace function undo_ended(p_job uuid) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    if hold_ended(p_job) <> 'succeeded' then perform undo_steps(p_job); end if;
end $$;
