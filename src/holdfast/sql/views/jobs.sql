-- Every job in all tables, with one status; place: the table. Reading it blocks no other session. It has no joins, so
-- that PostgreSQL can read the newest jobs from the indexes on id without sorting all of them.
create or replace view jobs as
select l.id, l.task, l.tenant, l.queue, l.priority, l.payload,
       case when l.token is not null then 'running'::job_status
            when l.attempt > 0 or l.last_error is not null then 'retrying' else 'queued' end as status,
       l.attempt as attempts, l.max_attempts, l.run_at, l.last_error, l.created_at,
       l.claimed_at as started_at, null::timestamptz as finished_at, null::jsonb as result, l.dedupe_key,
       (select c.worker from claims c where c.token = l.token) as locked_by,
       (select c.claimed_at from claims c where c.token = l.token) as locked_at,
       (select c.heartbeat_at from claims c where c.token = l.token) as heartbeat_at,
       (select c.expires_at from claims c where c.token = l.token) as lease_expires_at,
       l.token, l.batch, l.deadline, (select to_jsonb(p) - 'id' from progress p where p.id = l.id) as progress,
       to_jsonb(l.failures) as failures, (l.last_error ->> 'fingerprint') collate "C" as fingerprint,
       'live' as place, null::text as waits_for
from live l
union all
select id, task, tenant, queue, priority, payload,
       case when waits_for is not null then 'waiting'::text::job_status  -- from text: a new schema gets the value and this view at once
            when attempt > 0 or last_error is not null then 'retrying' else 'queued' end,
       attempt, max_attempts, run_at, last_error, created_at,
       null, null, null, dedupe_key, null, null, null, null, null, batch, deadline,
       (select to_jsonb(p) - 'id' from progress p where p.id = later.id), to_jsonb(failures), (last_error ->> 'fingerprint') collate "C",
       'later', waits_for
from later
union all
select id, task, tenant, queue, priority, payload, status, attempt, max_attempts, run_at, last_error, created_at,
       started_at, finished_at, null, dedupe_key, worker, null, null, null, null, batch, null,
       (select to_jsonb(p) - 'id' from progress p where p.id = dead.id), to_jsonb(failures), fingerprint, 'dead', null
from dead
union all
select id, task, tenant, queue, priority, payload, status, attempt, max_attempts, run_at, last_error, created_at,
       started_at, finished_at, result, dedupe_key, worker, null, null, null, null, batch, null,
       (select to_jsonb(p) - 'id' from progress p where p.id = history.id), to_jsonb(failures), (last_error ->> 'fingerprint') collate "C",
       'history', null
from history;
