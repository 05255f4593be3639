-- End a wait if what it waits for has happened, and return whether it has: the signal is there, the batch or the child
-- has ended.
-- Locks: none; the caller has locked the row of steps.
create or replace function end_wait(p_step steps) returns boolean
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_result json;
begin
    v_result := case p_step.kind
        when 'signal' then (select s.value from signals s where s.tenant = p_step.tenant and s.name = p_step.name and s.expires_at > clock())
        when 'batch' then batch_result(p_step.ref)
        when 'call' then child_result(p_step.ref) end;
    if v_result is null then return false; end if;
    update steps set finished_at = clock(), result = v_result where job = p_step.job and name = p_step.name and finished_at is null;
    return true;
end $$;
