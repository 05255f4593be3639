-- Remove a schedule; its jobs stay. A worker whose code still has the schedule registers it again when it starts.
-- Return whether the schedule existed.
-- Locks: the schedule's row.
create or replace function remove_schedule(p_name text, p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_before jsonb;
begin
    delete from schedules s where s.name = p_name
    returning jsonb_build_object('task', s.task, 'cron', s.cron, 'zone', s.zone, 'paused', s.paused) into v_before;
    if v_before is null then return false; end if;
    perform record_action('schedules.remove', p_name, p_by, p_reason, v_before);
    return true;
end $$;
