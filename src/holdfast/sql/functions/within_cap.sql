-- Those of the found jobs that keep each tenant within p_cap, counting what it has been served before: p_served in earlier
-- claims, p_taken in this one. Jobs without a tenant have no cap: their part is that of one tenant, and what others leave.
-- Called by: claim.
-- Locks: none.
-- Wakes: nobody.
create or replace function within_cap(p_found candidate[], p_cap integer, p_served jsonb, p_taken candidate[])
returns candidate[]
language plpgsql
set search_path from current
as $$
begin
    return array(
        select (f.place, f.id, f.lane, f.run_at, f.tenant, f.task, f.keys, f.dedupe_key, f.held)::candidate from (
            select f.*, row_number() over (partition by f.tenant order by f.ordinality) as n
            from unnest(p_found) with ordinality f) f
        left join (select t.tenant, count(*) as jobs from unnest(p_taken) t group by t.tenant) t
            on t.tenant is not distinct from f.tenant
        where f.tenant is null or f.n + coalesce(t.jobs, 0) + coalesce((p_served ->> f.tenant)::integer, 0) <= p_cap
        order by f.ordinality);
end $$;
