-- Make the change of an action to jobs, by the function that decides it, and return the ids of those that changed.
-- Locks: as retry_dead, discard_dead, cancel or change_jobs.
create or replace function make_change(p_kind text, p_params jsonb, p_ids uuid[]) returns uuid[]
language plpgsql set search_path from current as $$
begin
    return case p_kind
        when 'retry' then array(select retry_dead(p_ids))
        when 'discard' then array(select discard_dead(p_ids))
        when 'cancel' then array(select c.id from cancel(p_ids) c where c.outcome in ('canceled', 'canceling'))
        else array(select change_jobs(p_ids, p_params ->> 'queue', (p_params ->> 'priority')::integer, (p_params ->> 'run_at')::timestamptz))
    end;
end $$;
