-- The schedules that come due next, earliest first, without those paused and those in p_except. One is due when its
-- next_at is not after now, the time by the database's clock.
-- Called by: the upkeep leader, at each slot.
-- Locks: none.
-- Wakes: nobody.
create or replace function next_schedules(p_limit integer default 100, p_except text[] default '{}')
returns table (name text, cron text, zone text, missed missed_policy, next_at timestamptz, now timestamptz)
language sql stable security definer
set search_path from current
as $$
    select s.name, s.cron, s.zone, s.missed, s.next_at, clock() from schedules s
    where not s.paused and s.next_at is not null and s.name <> all (p_except)
    order by s.next_at, s.name limit p_limit
$$;
