-- Records why a schedule could not be fired, for operators. Firing or registering it clears the record.
-- Locks: the schedule's row, giving up if it is locked.
create or replace function flag_schedule(p_name text, p_problem text) returns void
language sql security definer set search_path from current as $$
    update schedules set problem = left(p_problem, 1000) where name = (
        select s.name from schedules s where s.name = p_name and s.problem is distinct from left(p_problem, 1000)
        for update skip locked)
$$;
