-- Failures in groups: how many attempts failed, how many jobs are dead now, and failures by hour for the last 48.
-- Failures of the last seconds are missing: upkeep counts them (fold_errors).
create or replace view errors as
select g.fingerprint, g.task, g.type, g.code, g.message, g.frame, g.attempts, g.dead, g.first_at, g.last_at,
       g.example_job, g.example, coalesce(c.trend, '{}') as trend
from error_groups g left join lateral (
    select jsonb_object_agg(to_char(c.hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), c.attempts order by c.hour) as trend
    from error_counts c where c.fingerprint = g.fingerprint) c on true;
