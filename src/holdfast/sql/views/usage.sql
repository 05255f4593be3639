-- The usage of tenants: attempts that ended in each minute, how many of them failed, their time from claim to end, and
-- their wait since they were due. '' is work without a tenant. Earlier rows are of ten minutes and, after two
-- hours, of whole hours (fold_usage).
create or replace view usage as
select minute, tenant, task, sum(runs)::bigint as runs, sum(failures)::bigint as failures,
       sum(run_seconds) as run_seconds, sum(queue_seconds) as queue_seconds
from usage_counts group by minute, tenant, task;
