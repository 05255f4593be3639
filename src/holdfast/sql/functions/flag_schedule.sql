-- Notes why a schedule could not be fired, for people to see. Firing or registering it removes the note.
-- Called by: the upkeep leader.
-- Locks: the schedule's row, stepping back if it is locked.
-- Wakes: nobody.
create or replace function flag_schedule(p_name text, p_problem text) returns void
language sql security definer
set search_path from current
as $$
    update schedules set problem = left(p_problem, 1000) where name = (
        select s.name from schedules s where s.name = p_name and s.problem is distinct from left(p_problem, 1000)
        for update skip locked)
$$;
