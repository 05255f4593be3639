-- The share of each tenant in the running jobs; tenant is null for jobs without one. Read from the claims, so the cost
-- does not grow with the backlog.
create or replace view tenant_shares as
select c.tenant, c.running, c.running / sum(c.running) over () as share, c.oldest_start, coalesce(m.weight, 1) as weight
from (select tenant, count(*) as running, min(claimed_at) as oldest_start from claimed_jobs() group by tenant) c
left join limit_settings m on m.key = 'tenant:' || c.tenant;
