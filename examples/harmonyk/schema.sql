-- Harmonyk's own names for what Holdfast keeps. Nothing is stored twice: both are views.
drop schema if exists harmonyk cascade;
create schema harmonyk;

-- The table of the design, column by column. Attempts that wait for their next try are queued, as it says.
create view harmonyk.jobs as
select id,
       task as type,
       case when tenant ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then tenant::text::uuid end as org_id,
       payload::jsonb as payload,
       case status
           when 'queued'    then 'queued'
           when 'retrying'  then 'queued'
           when 'running'   then 'running'
           when 'succeeded' then 'success'
           else                  'failed'       -- failed, dead, and canceled by a person
       end as status,
       attempts,
       run_at as next_run_at,
       last_error ->> 'message' as last_error,
       created_at,
       coalesce(finished_at, heartbeat_at, started_at, created_at) as updated_at
from holdfast.jobs;

-- Insights: what background work costs each organization, and how reliable it is. One usage event is counted for each run.
create view harmonyk.insights as
select nullif(tenant, '') as org_id, task as type, sum(runs)::int as runs, sum(failures)::int as failures,
       round(100 * (1 - sum(failures) / sum(runs)), 1)::float as reliability_percent,
       round(sum(run_seconds)::numeric, 3)::float as run_seconds,
       round(sum(queue_seconds)::numeric, 3)::float as queue_seconds
from holdfast.usage
where minute > now() - interval '30 days'
group by tenant, task
order by runs desc, org_id, type;
