-- Removes a schedule; jobs that it has made stay. A worker whose code still has it brings it back when it starts.
-- Answers whether there was such a schedule.
-- Called by: operators.
-- Locks: the schedule's row.
-- Wakes: nobody.
create or replace function remove_schedule(p_name text) returns boolean
language plpgsql security definer
set search_path from current
as $$
begin
    delete from schedules s where s.name = p_name;
    return found;
end $$;
