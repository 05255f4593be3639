-- The health of every limit's key, one row for each source, domain or account: enabled is false while it is
-- paused; paused_until is the later of that pause's end and the breaker's.
create view sources as
select key as name, not paused as enabled, failure_streak, last_success_at, last_failure_at,
       greatest(case when paused then paused_until end, open_until) as paused_until,
       rate / per * 60 as rate_limit_per_minute
from limit_use where kind = 'key';
