-- Pauses a schedule, or lets it go on with p_paused false. Slots that pass while it is paused are not made up for: it
-- counts them again from the moment it goes on. Answers whether there is such a schedule; once more is no change.
-- Called by: operators.
-- Locks: the schedule's row.
-- Wakes: nobody; the upkeep leader sees it in its next round.
create or replace function pause_schedule(p_name text, p_paused boolean default true) returns boolean
language plpgsql security definer
set search_path from current
as $$
begin
    update schedules s
    set paused = p_paused,
        next_at = case when s.paused and not p_paused then greatest(s.next_at, clock()) else s.next_at end
    where s.name = p_name;
    return found;
end $$;
