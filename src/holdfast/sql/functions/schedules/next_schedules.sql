-- Return the schedules that are due next, earliest first, without paused ones and those in p_except. A schedule is due
-- when next_at <= now; now is the database's clock.
create or replace function next_schedules(p_limit integer default 100, p_except text[] default '{}')
    returns table (name text, cron text, zone text, missed missed_policy, next_at timestamptz, now timestamptz)
language sql stable security definer set search_path from current as $$
    select s.name, s.cron, s.zone, s.missed, s.next_at, clock() from schedules s
    where not s.paused and s.next_at is not null and s.name <> all (p_except) order by s.next_at, s.name limit p_limit
$$;
