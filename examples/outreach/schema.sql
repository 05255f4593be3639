-- Outreach's own tables, and the names of the design for what Holdfast keeps. Its queries run as they are written with
--   set search_path = outreach, holdfast;
-- worker_tick_metrics and worker_health_summary are views of Holdfast's.
drop schema if exists outreach cascade;
create schema outreach;

-- Holdfast's outbox in the words of the design. idempotency_key is unique.
create view outreach.channel_outbox as
select id, tenant as tenant_id, channel, idempotency_key, status, attempts, payload, error ->> 'message' as error_message,
       created_at, delivered_at as sent_at
from holdfast.outbox;

create table outreach.tenants (
    id text primary key
);

-- Whom a campaign has touched: written in the transaction that ends the job.
create table outreach.touches (
    tenant_id  text        not null references outreach.tenants,
    campaign   text        not null,
    contact    text        not null,
    channel    text        not null,
    touched_at timestamptz not null default now(),
    primary key (tenant_id, campaign, contact)
);

-- The queue. locked_at is when the worker was last heard of: a job that takes long is not stuck while its worker
-- renews the lock, so `locked_at < now() - interval '5 minutes'` finds those of dead workers and no others.
create view outreach.job_queue as
select id,
       tenant as tenant_id,
       task as type,
       payload,
       case status
           when 'queued'    then 'queued'
           when 'retrying'  then 'queued'
           when 'running'   then 'locked'
           when 'succeeded' then 'completed'
           when 'dead'      then 'failed'
           else status::text
       end as status,
       run_at as scheduled_for,
       created_at,
       heartbeat_at as locked_at,
       locked_by,
       attempts,
       last_error ->> 'message' as last_error
from holdfast.jobs
where not starts_with(task, 'channel:');

-- The remedy for stuck jobs. Workers and ticks do the same by themselves; run its UPDATE to be faster.
create function outreach.unlock() returns trigger
language plpgsql
as $$
begin
    if old.status <> 'locked' or new.status <> 'queued' then
        raise exception 'job_queue is a view of holdfast.jobs; a locked job may be set to queued, and nothing else';
    end if;
    perform holdfast.reclaim(1000);
    if exists (select 1 from holdfast.jobs j where j.id = old.id and j.status = 'running'
                  and j.locked_by = old.locked_by and j.lease_expires_at > holdfast.clock()) then
        raise exception 'job % is with %, which is alive', old.id, old.locked_by
            using hint = 'its lock runs out by itself when that worker dies';
    end if;
    return new;
end $$;

create trigger unlock instead of update on outreach.job_queue
    for each row execute function outreach.unlock();

-- The design's thresholds for ticks, in place of those that Holdfast has for continuous workers.
update holdfast.settings set value = '{"tick_duration": {"warning": 30, "critical": 50}, "lock_contentions": {"warning": 1},
    "jobs_per_tick": {"warning": 51, "critical": 100}, "queue_depth": {"warning": 100, "critical": 500}}'
where name = 'thresholds';
