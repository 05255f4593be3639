-- Let a new job, which is in later, wait for the end of others. If one has failed already, cancel it now, and the jobs
-- that follow it. The caller has locked them (lock_predecessors).
create or replace function follow(p_id uuid, p_pending uuid[], p_failed uuid[], p_on_failure text) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    if p_failed <> '{}' and p_on_failure in ('cancel', 'skip') then
        perform cancel_waiting(array[p_id], jsonb_build_object(
            'type', 'PredecessorFailed', 'code', case p_on_failure when 'skip' then 'SKIPPED' else 'PREDECESSOR_FAILED' end,
            'message', format('job %s, after which it was to start, did not succeed', p_failed[1])));
    else
        insert into follows (job, follower, on_failure)
        select j, p_id, p_on_failure from unnest(p_pending || case when p_on_failure = 'hold' then p_failed end) j on conflict do nothing;
    end if;
end $$;
