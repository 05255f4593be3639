-- Removes a schedule; its jobs stay. A worker whose code still has the schedule registers it again when it starts.
-- Returns whether the schedule existed.
-- Locks: the schedule's row.
create or replace function remove_schedule(p_name text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    delete from schedules s where s.name = p_name;
    return found;
end $$;
