-- Pause a schedule, or resume it if p_paused is false. Slots missed while it is paused are skipped: it counts slots
-- from the moment it is resumed. Return whether the schedule exists; a repeated call changes nothing. The upkeep
-- leader reads the change in its next round.
-- Locks: the schedule's row.
create or replace function pause_schedule(p_name text, p_paused boolean default true,
    p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_before boolean := (select s.paused from schedules s where s.name = p_name);
begin
    update schedules s
    set paused = p_paused,
        next_at = case when s.paused and not p_paused then greatest(s.next_at, clock()) else s.next_at end
    where s.name = p_name;
    if not found then return false; end if;
    if v_before <> p_paused then
        perform record_action(case when p_paused then 'schedules.pause' else 'schedules.resume' end, p_name, p_by, p_reason,
                              jsonb_build_object('paused', v_before), jsonb_build_object('paused', p_paused));
    end if;
    return true;
end $$;
