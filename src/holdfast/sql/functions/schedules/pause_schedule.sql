-- Pauses a schedule, or resumes it if p_paused is false. Slots missed while it is paused are skipped: it counts slots
-- from the moment it is resumed. Returns whether the schedule exists; a repeated call changes nothing. The upkeep
-- leader reads the change in its next round.
-- Locks: the schedule's row.
create or replace function pause_schedule(p_name text, p_paused boolean default true) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    update schedules s
    set paused = p_paused,
        next_at = case when s.paused and not p_paused then greatest(s.next_at, clock()) else s.next_at end
    where s.name = p_name;
    return found;
end $$;
