-- Undo the finished steps of a job that has ended, by hand, in reverse order. Return the number of undo jobs. Steps
-- that were undone earlier stay as they are. p_tenant, p_deliveries: as in edit_job.
-- Locks: as hold_ended and undo_steps. Wakes: as undo_steps.
create or replace function compensate(p_id uuid, p_by text default null, p_reason text default null,
    p_tenant text default null, p_deliveries boolean default true) returns integer
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_seen boolean := seen_jobs(p_tenant is null, p_tenant, p_deliveries, array[p_id]) <> '{}'; v_status text; v_undone integer;
begin
    if v_seen then v_status := hold_ended(p_id); end if;
    if v_status is null then
        v_status := (select j.status::text from jobs j where j.id = p_id and v_seen);
        raise exception 'job % cannot be compensated: %', p_id, case when v_status is null then 'there is none' else 'it is ' || v_status end
            using errcode = 'invalid_parameter_value', constraint = 'action', hint = 'cancel a job that has not ended; that undoes its steps, too';
    end if;
    v_undone := undo_steps(p_id);
    if v_undone > 0 then perform record_action('jobs.compensate', p_id::text, p_by, p_reason, p_after => jsonb_build_object('undone', v_undone), p_tenant => p_tenant); end if;
    return v_undone;
end $$;
