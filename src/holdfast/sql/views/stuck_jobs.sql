-- Running jobs whose lease has expired: their worker is gone or cut off, and reclaim will handle them.
create or replace view stuck_jobs as
select id, task, tenant, queue, attempts, locked_by, heartbeat_at, clock() - heartbeat_at as time_since_heartbeat
from jobs where status = 'running' and lease_expires_at < clock();
